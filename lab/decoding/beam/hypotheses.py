"""Finished texts: how they are scored, which of them stay, and when the search may stop.

The rules are those of transformers 5.24 (`generation/utils.py`: `_update_finished_beams`,
`_check_early_stop_heuristic`, `_beam_search_has_unfinished_sequences`), written anew for one prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EarlyStopping = Literal["true", "false", "never"]


@dataclass(frozen=True)
class Finished:
    """A finished text.

    Attributes:
        node: its last node in the tree of candidates.
        length: n of the formula: generated tokens, the end token included.
        sum_log_prob: the sum of its tokens' log-probabilities.
        score: see `final_score`.
        is_end: an end token ended it; else the length limit did.
    """

    node: int
    length: int
    sum_log_prob: float
    score: float
    is_end: bool


def final_score(sum_log_prob: float, length: int, length_penalty: float) -> float:
    """sum_log_prob / length ** length_penalty (Wu et al. 2016 divide by another function of the length)."""
    return sum_log_prob / float(length**length_penalty)


class Pool:
    """The best finished texts so far, best first, at most `size`. Ties: the older one, then the better rank."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.held: list[Finished] = []

    def offer(self, finished: Sequence[Finished]) -> None:
        """Merge one step's finished texts, given by rank."""
        self.held = self._best([*self.held, *finished], raw=False)

    def would_enter_by_sum(self, finished: Sequence[Finished], before: Sequence[Finished]) -> set[int]:
        """Nodes of `finished` that would have stayed if the sums themselves were compared (length penalty 0).

        Args:
            finished: one step's finished texts, by rank.
            before: what the pool held before them.
        """
        nodes = {text.node for text in finished}
        return {text.node for text in self._best([*before, *finished], raw=True) if text.node in nodes}

    def _best(self, texts: list[Finished], *, raw: bool) -> list[Finished]:
        # sorted() is stable, so the older and then the better rank goes before its equals.
        return sorted(texts, key=lambda text: -(text.sum_log_prob if raw else text.score))[: self._size]

    @property
    def full(self) -> bool:
        """Whether it holds as many texts as it can."""
        return len(self.held) >= self._size

    @property
    def worst(self) -> float:
        """The worst score held; -inf while there is room."""
        return self.held[-1].score if self.full else -math.inf


@dataclass(frozen=True)
class StopRule:
    """When a search stops before the length limit.

    "true": as soon as the pool is full. "false": when the pool is full and the best running text, at its
    present length, scores no better than the worst in it. "never": likewise, but with a positive length penalty the
    running text's sum is divided by the greatest length it may have, which makes the bound a true one: sums only
    fall. With a penalty of 0 or below, the present length is that bound already.
    """

    early_stopping: EarlyStopping
    length_penalty: float
    max_new_tokens: int

    def bound(self, best_sum: float, length: int) -> float:
        """The best score that a running text is granted.

        Args:
            best_sum: the summed log-probability of the best running text.
            length: its tokens so far.
        """
        to_the_end = self.early_stopping == "never" and self.length_penalty > 0
        return final_score(best_sum, self.max_new_tokens if to_the_end else length, self.length_penalty)

    def why_stop(self, pool: Pool, bound: float) -> str:
        """Why to stop now, in words; "" to go on.

        Args:
            bound: of the best running text; -inf if there is none.
        """
        if not pool.full:
            return "" if bound > -math.inf else "no text can go on"
        if self.early_stopping == "true":
            return "there are as many finished texts as beams"
        if bound > pool.worst:
            return ""
        if self.early_stopping == "never":
            return "no running text can still beat the worst finished one"
        return "no running text is better than the worst finished one at its present length"
