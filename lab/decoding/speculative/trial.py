"""The exactness trial: many pairs (first, second token), tested against p(first) p(second | first).

A match rate of two samples would not do: two exact samplers agree in sum p^2 of their draws only, and a sampler that
favours the top token agrees more often. So the pairs are counted and tested by chi-square.

Cells. Pairs whose expectation is below 5 are pooled, first with the other pairs of the same first token, then with all
others, at last with the smallest cell: below 5 the statistic does not follow chi-square. Which cells are
pooled depends on p and the number of runs only, never on what was observed.

Red is a p-value below 1e-6. The trial may be looked at as often as one likes: even with a hundred looks an exact rule
turns red less than once in ten thousand trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.decoding.speculative import chi_square
from lab.decoding.speculative.chi_square import Floats
from lab.errors import BadInput

RED = 1e-6
"""The p-value below which the trial is red."""

LEAST_EXPECTED = 5.0
"""Expectation below which cells are pooled."""

MOST_FIRSTS = 128
"""First tokens whose second token is looked at: each costs a pass of the model."""

SHOWN_PAIRS = 11
_OTHER = -1


@dataclass(frozen=True)
class PairCount:
    """One pair of tokens. Token ids of -1 stand for all pairs that are not listed."""

    first: int
    second: int
    expected: float
    observed: int


@dataclass(frozen=True)
class TrialFigures:
    """The trial so far. Fields as in the event `TrialPoint`.

    Attributes:
        expected_variation: what `total_variation` would be on average from chance alone, over the same cells.
        power: P(red) with so many runs if the pairs came from the alternative; 0 if none was given.
        pairs: the most probable ones, then one for all others.
    """

    runs: int
    planned: int
    statistic: float
    degrees: int
    p_value: float
    total_variation: float
    expected_variation: float
    power: float
    pairs: tuple[PairCount, ...]

    @property
    def red(self) -> bool:
        """Whether the draws do not follow p."""
        return self.p_value < RED


def firsts_wanted(p_first: Tensor, planned: int) -> list[int]:
    """The first tokens whose p(second | first) the trial can use: expected at least 5 times, the most probable first,
    at most 128."""
    p = _exact(p_first)
    top = torch.topk(p, min(MOST_FIRSTS, p.numel()))
    return [
        int(i) for i, share in zip(top.indices, top.values, strict=True) if float(share) * planned >= LEAST_EXPECTED
    ]


class Trial:
    """Counts pairs and tests them.

    Args:
        p_first: (vocab,) the target's distribution of the first token.
        p_second: for the tokens of `firsts_wanted`, or fewer, the (vocab,) distribution of the second. Of other
            firsts only the first token is tested.
        planned: how many pairs will be drawn.
        alternative: (first, second by first) what the pairs would follow if the rule failed, for `power`: the
            draft's own distributions. A first without a second there has p's.

    Raises:
        BadInput: a plan below 1, distributions of another length or with NaN.
    """

    def __init__(
        self,
        p_first: Tensor,
        p_second: Mapping[int, Tensor],
        planned: int,
        *,
        alternative: tuple[Tensor, Mapping[int, Tensor]] | None = None,
    ) -> None:
        if planned < 1:
            raise BadInput(f"The trial plans {planned} runs.", remedy="Plan at least one.")
        self.planned, self.runs = planned, 0
        self._vocab = p_first.numel()
        self._p_second = {first: _exact(p) for first, p in p_second.items()}
        self._cells: dict[tuple[int, int], int] = {}
        self._lay_out(_exact(p_first))
        self._firsts = np.array([first for first, _ in self._cells], dtype=np.int64)
        self._seconds = np.array([second for _, second in self._cells], dtype=np.int64)
        self._probability = self.cells_of(p_first, p_second)
        self._observed = np.zeros(len(self._cells), dtype=np.int64)
        self._truth = None if alternative is None else self.cells_of(*alternative)

    def _lay_out(self, p: Tensor) -> None:
        """One cell for each pair expected 5 times in the whole trial, one for the rest of each such first token, and
        the last for all other firsts."""
        for first in (p * self.planned >= LEAST_EXPECTED).nonzero()[:, 0].tolist():
            second = self._p_second.get(first)
            if second is not None:
                often = second * float(p[first]) * self.planned >= LEAST_EXPECTED
                for token in often.nonzero()[:, 0].tolist():
                    self._cells[first, token] = len(self._cells)
            self._cells[first, _OTHER] = len(self._cells)
        self._cells[_OTHER, _OTHER] = len(self._cells)

    def cells_of(self, first: Tensor, second: Mapping[int, Tensor]) -> Floats:
        """The probability of each cell if the pairs follow `first` and `second`; p's second where that has none.

        Raises:
            BadInput: distributions of another length, or with NaN.
        """
        shares, seconds = self._fitting(first), {token: self._fitting(p) for token, p in second.items()}
        result = np.zeros(len(self._cells))
        for (one, two), cell in self._cells.items():
            if two != _OTHER:
                result[cell] = float(shares[one]) * float(seconds.get(one, self._p_second[one])[two])
        for (one, two), cell in self._cells.items():
            if two == _OTHER and one != _OTHER:
                result[cell] = float(shares[one]) - result[self._firsts == one].sum()
        result[-1] = 1.0 - result.sum()
        result[result < 1e-12] = 0.0  # what rounding leaves of nothing
        return result

    def _fitting(self, distribution: Tensor) -> Tensor:
        if distribution.numel() != self._vocab:
            raise BadInput(
                f"A distribution has {distribution.numel()} tokens, the first one {self._vocab}.",
                remedy="Give all over one vocabulary.",
            )
        return _exact(distribution)

    def add(self, first: int, second: int) -> None:
        """Count one pair.

        Raises:
            BadInput: a token outside the vocabulary.
        """
        if not (0 <= first < self._vocab and 0 <= second < self._vocab):
            raise BadInput(f"The pair ({first}, {second}) is outside the vocabulary.", remedy="Give token ids.")
        cells = self._cells
        cell = cells.get((first, second))
        if cell is None:
            cell = cells.get((first, _OTHER), len(cells) - 1)
        self._observed[cell] += 1
        self.runs += 1

    def point(self) -> TrialFigures:
        """The figures so far; some milliseconds at most."""
        runs = self.runs
        if runs == 0:
            return TrialFigures(0, self.planned, 0.0, 0, 1.0, 0.0, 0.0, 0.0, self._pairs())
        groups = self._pooled(runs)
        observed = _summed(groups, self._observed)
        probability = _summed(groups, self._probability)
        degrees = len(probability) - 1
        statistic = chi_square.statistic_of(observed, probability) if degrees else 0.0
        p_value = chi_square.p_value(statistic, degrees)
        if degrees == 0 and self._observed[self._probability == 0].any():
            statistic, p_value = inf, 0.0  # one pair has all of p, and another came
        power = 0.0
        if self._truth is not None:
            power = chi_square.power(probability, _summed(groups, self._truth), runs, RED)
        return TrialFigures(
            runs,
            self.planned,
            statistic,
            degrees,
            p_value,
            chi_square.variation(observed, probability),
            chi_square.expected_variation(probability, runs),
            power,
            self._pairs(),
        )

    def planned_power(self, truth: Floats | None = None) -> float:
        """P(red) at the end of the trial if the pairs follow `truth` (of `cells_of`), or the alternative."""
        truth = self._truth if truth is None else truth
        if truth is None:
            return 0.0
        groups = self._pooled(self.planned)
        probability = _summed(groups, self._probability)
        return chi_square.power(probability, _summed(groups, truth), self.planned, RED)

    def _pooled(self, runs: int) -> NDArray[np.int64]:
        """For each cell, its group among 0, 1, ...; every group is expected 5 times, if there are two."""
        label = np.arange(len(self._cells))
        rest = len(self._cells) - 1
        other = np.array([self._cells[first, _OTHER] for first in self._firsts.tolist()])
        small = self._probability * runs < LEAST_EXPECTED
        label[small] = other[small]
        small = np.bincount(label, weights=self._probability, minlength=rest + 1) * runs < LEAST_EXPECTED
        label[small[label]] = rest
        shares = np.bincount(label, weights=self._probability, minlength=rest + 1)
        if shares[rest] * runs < LEAST_EXPECTED:
            used = [cell for cell in np.unique(label).tolist() if cell != rest]
            if used:
                label[label == rest] = min(used, key=lambda cell: shares[cell])
        return np.unique(label, return_inverse=True)[1]

    def _pairs(self) -> tuple[PairCount, ...]:
        named = np.flatnonzero(self._seconds != _OTHER)
        top = named[np.argsort(-self._probability[named], kind="stable")[:SHOWN_PAIRS]]
        pairs = [
            PairCount(
                int(self._firsts[cell]),
                int(self._seconds[cell]),
                self.runs * float(self._probability[cell]),
                int(self._observed[cell]),
            )
            for cell in top.tolist()
        ]
        expected = max(0.0, self.runs - sum(pair.expected for pair in pairs))
        others = PairCount(_OTHER, _OTHER, expected, self.runs - sum(pair.observed for pair in pairs))
        return (*pairs, others)


def _summed(groups: NDArray[np.int64], values: NDArray[np.float64] | NDArray[np.int64]) -> Floats:
    return np.bincount(groups, weights=values).astype(np.float64)


def _exact(distribution: Tensor) -> Tensor:
    double = distribution.detach().to(device="cpu", dtype=torch.float64).flatten()
    total = float(double.sum())
    if not 0.0 < total < inf:
        raise BadInput(f"A distribution sums to {total}.", remedy="Give probabilities, without NaN.")
    return double / total
