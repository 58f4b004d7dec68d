"""Whether a mask or a weight is N:M: of each M consecutive weights of a row, along in_features, at most N are not zero.

Hardware that skips zeros reads garbage where that does not hold, so it is checked before anything is packed. A mask
made along out_features (down a column) often looks right in its counts alone: the groups that break are named.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.pruning.pattern import Pattern

MOST_NAMED = 1000
"""Groups that a report names, at most."""


@dataclass(frozen=True)
class BrokenGroup:
    """A group with too many weights.

    Attributes:
        row: the output.
        group: within the row; its first column is group * m.
        kept: weights that are not zero, above n.
    """

    row: int
    group: int
    kept: int


@dataclass(frozen=True)
class NmReport:
    """What was found.

    Attributes:
        n, m: the pattern.
        groups: in all.
        broken_count: groups with more than n weights.
        broken: the first of them by row and group, `MOST_NAMED` at most.
        fewer: groups with fewer than n weights: valid, but a packed file stores zeros for them.
        fits_along_out: whether the same pattern holds down the columns instead: the wrong axis.
    """

    n: int
    m: int
    groups: int
    broken_count: int
    broken: tuple[BrokenGroup, ...]
    fewer: int
    fits_along_out: bool

    @property
    def valid(self) -> bool:
        """Whether no group breaks the pattern."""
        return self.broken_count == 0

    @property
    def words(self) -> str:
        """The finding, for a person."""
        name = f"{self.n}:{self.m}"
        if self.valid:
            return f"All {self.groups:,} groups along in_features are {name}."
        first = self.broken[0]
        start = first.group * self.m
        said = (
            f"{self.broken_count:,} of {self.groups:,} groups along in_features are not {name}; the first is group "
            f"{first.group} of row {first.row}, columns {start} to {start + self.m - 1}, with {first.kept} weights."
        )
        return f"{said} Along out_features the pattern holds: this is the wrong axis." if self.fits_along_out else said


def check_nm(matrix: Tensor, n: int, m: int) -> NmReport:
    """Look at every group.

    Args:
        matrix: (out, in): a mask, True where kept, or weights; what is not zero counts, NaN too. A Conv1D's (in, out)
            weight must be turned first.

    Raises:
        BadInput: no matrix, no such N:M, or a width that m does not divide.
    """
    pattern = _checked(matrix, n, m)
    pattern.check(matrix.shape[1])
    counts = group_counts(matrix, m)
    bad = counts > n
    places = bad.nonzero()[:MOST_NAMED]
    kept = counts[places[:, 0], places[:, 1]]
    broken = tuple(
        BrokenGroup(row, group, count) for (row, group), count in zip(places.tolist(), kept.tolist(), strict=True)
    )
    turned = bool(broken) and matrix.shape[0] % m == 0 and bool((group_counts(matrix.t(), m) <= n).all())
    return NmReport(n, m, counts.numel(), int(bad.sum()), broken, int((counts < n).sum()), turned)


def require_nm(matrix: Tensor, n: int, m: int, name: str = "The matrix") -> None:
    """Refuse what is not N:M.

    Raises:
        BadInput: with the first group that breaks it; besides, see `check_nm`.
    """
    report = check_nm(matrix, n, m)
    if not report.valid:
        raise BadInput(f"{name}: {report.words}", remedy=f"Prune it to {n}:{m} along in_features first.")


def group_counts(matrix: Tensor, m: int) -> Tensor:
    """(out, in / m) int64: how many of each m consecutive entries of a row are not zero."""
    there = matrix != 0
    counts = there[:, ::m].to(torch.int64)
    for place in range(1, m):  # m sums of whole columns: a sum over so short a last axis is slower
        counts += there[:, place::m]
    return counts


def _checked(matrix: Tensor, n: int, m: int) -> Pattern:
    if matrix.dim() != 2 or not matrix.numel():
        raise BadInput(
            f"There are no rows and columns in a tensor of {tuple(matrix.shape)}.",
            remedy="Give a mask or weights of shape (out, in).",
        )
    if not m:  # a pattern of 0:0 would be none
        raise BadInput(f"There is no pattern {n}:{m}.", remedy="Choose 2:4, 4:8 or 1:4.")
    return Pattern(n=n, m=m)
