"""SparseGPT's choice and removal of weights, column after column, of matrices that read the same inputs.

Frantar and Alistarh 2023, "SparseGPT": of a block of columns, the weights with the least w^2 / U_ii^2 go; with N:M
those of each group, chosen when its first column comes, from the weights as they then stand. How what is lost is
passed on, and the layout: `lab.calibration.columns`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lab.calibration.columns import ColumnLoop
from lab.pruning.choose import below, in_rows
from lab.pruning.pattern import Pattern
from lab.pruning.threshold import kth_smallest
from lab.steps import finished


class Removing(ColumnLoop):
    """Columns whose weights are removed or kept.

    Args:
        heights: rows of each matrix: each has its own counts.
        upper: (in, in) U, before `solving` uses it up.
        dead: (in,) bool: columns whose inputs were always 0: their weights cost nothing and go first.

    Attributes:
        gone: (in, rows) bool: True where a weight was pruned.
        values: (in, rows) fp32: 0 where pruned; elsewhere the weight with all earlier columns' errors in it.
    """

    def __init__(self, pattern: Pattern, heights: Sequence[int], upper: Tensor, dead: Tensor, block: int) -> None:
        width, rows = upper.shape[0], sum(heights)
        super().__init__(rows, block, upper.device)
        self._pattern, self._heights, self._width = pattern, list(heights), width
        self._cost = upper.diagonal().square().reciprocal_()
        self._dead = dead if bool(dead.any()) else None
        self.gone = torch.zeros(width, rows, dtype=torch.bool, device=upper.device)
        self.values = torch.empty(width, rows, device=upper.device)
        self._value = self.values.unbind(0)
        self._block_gone = torch.zeros(block, rows, device=upper.device)
        self._gone = self._block_gone.unbind(0)

    def begin_block(self, weight: Tensor, start: int, stop: int) -> None:
        """Choose what goes in a block, unless each group of it chooses for itself."""
        if self._pattern.m:
            return
        scores = self._scores(weight[start:stop], start, stop)
        for low, part in zip(self._starts(), torch.split(scores, self._heights, dim=1), strict=True):
            chosen = self._lowest(part.t().contiguous(), start, stop)
            self.gone[start:stop, low : low + part.shape[1]] = chosen.t()
        self._block_gone[: stop - start].copy_(self.gone[start:stop])

    def settle(self, column: int, i: int, place: int, error: Tensor) -> None:
        m = self._pattern.m
        if m and column % m == 0:
            chosen = self._of_each_group(self._scores(self.piece[i : i + m], column, column + m))
            self.gone[column : column + m] = chosen
            self._block_gone[place : place + m].copy_(chosen)
        torch.mul(self.columns[i], self._gone[place], out=error)
        torch.sub(self.columns[i], error, out=self._value[column])

    def _scores(self, weight: Tensor, start: int, stop: int) -> Tensor:
        scores = weight.square().mul_(self._cost[start:stop, None])
        return scores if self._dead is None else scores.masked_fill_(self._dead[start:stop, None], 0.0)

    def _starts(self) -> list[int]:
        return [sum(self._heights[:i]) for i in range(len(self._heights))]

    def _lowest(self, scores: Tensor, start: int, stop: int) -> Tensor:
        """The block's share of the weights that go, (height, block) bool: shares add up to the exact count."""
        if self._pattern.scope == "row":
            return in_rows(scores, self._share(self._width, start, stop))
        count = self._share(len(scores) * self._width, start, stop)
        threshold = finished(kth_smallest(lambda: iter((scores,)), count, scores.numel()))
        return below(scores, threshold, threshold.ties)[0]

    def _share(self, weights: int, start: int, stop: int) -> int:
        total = self._pattern.pruned_of(weights)
        return total * stop // self._width - total * start // self._width

    def _of_each_group(self, scores: Tensor) -> Tensor:
        """(m, rows) bool: all but the n highest; among equal ones the earlier goes."""
        order = torch.argsort(scores, dim=0, stable=True)
        least = order[: self._pattern.m - self._pattern.n]
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(0, least, value=True)
