"""Columns of a matrix settled one after another, their errors passed on: what GPTQ and SparseGPT share.

With H the mean of 2 x x^T, damped, and U the upper triangular matrix with H^-1 = U^T U: once column i is settled,
e = (w_i - q_i) / U_ii, and every later column j gives w_j -= e U_ij.

Everything is held transposed, (column, row), so that a column is contiguous; rows are independent of one another, so
matrices of one Hessian are worked on as one. Errors reach the later columns in three steps that give the same sums:
inside `INNER` columns at once, then inside the block, then beyond it.

Source: Frantar et al. 2022, "GPTQ"; Frantar and Alistarh 2023, "SparseGPT".
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from itertools import pairwise

import torch
from torch import Tensor

INNER = 16
"""Columns whose errors are passed on one by one; later ones wait for a matrix product."""


class ColumnLoop:
    """The loop; a subclass says what becomes of a column. All views are made once: at these sizes an operation costs
    its call, not its arithmetic.

    Args:
        rows: of the matrix.
        block: columns whose errors wait before they reach the columns beyond.

    Attributes:
        errors: (block, rows) fp32, of the current block: w - q, not divided by U_ii.
        piece: (INNER, rows) fp32: the columns at hand with all earlier errors in them; shorter pieces leave old
            columns at its end.
        columns: views of `piece`, one a column.
    """

    def __init__(self, rows: int, block: int, device: torch.device) -> None:
        self.block = block
        self.errors = torch.zeros(block, rows, device=device)
        self._error = self.errors.unbind(0)
        self.piece = torch.zeros(INNER, rows, device=device)
        self.columns = self.piece.unbind(0)
        self._upper = torch.zeros(INNER, INNER, device=device)
        self._rest = [self.piece[i + 1 :] for i in range(INNER)]
        self._factor = [self._upper[i, i + 1 :] for i in range(INNER)]

    def settle(self, column: int, i: int, place: int, error: Tensor) -> None:
        """Settle `column`, which stands as `columns[i]` and is number `place` of its block; write w - q to `error`."""
        raise NotImplementedError

    def begin_block(self, weight: Tensor, start: int, stop: int) -> None:
        """Called before the columns `start` to `stop`; `weight`, (in, rows), has all errors of earlier blocks."""

    def begin_group(self, weight: Tensor, upper: Tensor, column: int, start: int, stop: int) -> None:
        """Called before a column of `starts`; in its block, `start` to `stop`, `weight` is up to date."""

    def end_block(self, start: int, stop: int) -> None:
        """Called once the columns are settled."""

    def solving(
        self, weight: Tensor, upper: Tensor, starts: Collection[int] = frozenset()
    ) -> Generator[float, None, Tensor]:
        """Settle all columns. Yields the share done after each block.

        Args:
            weight: (in, rows) fp32, in the order of the columns; used up.
            upper: (in, in) U, in the same order; used up.
            starts: columns at which `begin_group` is to be called.

        Returns:
            Each row's loss: the sum of e^2 / 2, (rows,).
        """
        width = weight.shape[0]
        loss = torch.zeros(weight.shape[1], device=weight.device)
        halves = upper.diagonal().square().mul_(2.0).reciprocal_()
        # From here on the errors are w - q; the division by U_ii is in the row of U that they are multiplied with.
        upper.div_(upper.diagonal().clone()[:, None])
        for start in range(0, width, self.block):
            stop = min(start + self.block, width)
            with torch.no_grad():
                self.begin_block(weight, start, stop)
                for low, high in inner_ranges(start, stop, starts):
                    if low in starts:
                        self.begin_group(weight, upper, low, start, stop)
                    self._run(weight, upper, low, high, start)
                    if high < stop:
                        errors = self.errors[low - start : high - start]
                        weight[high:stop].addmm_(upper[low:high, high:stop].t(), errors, alpha=-1.0)
                errors = self.errors[: stop - start]
                self.end_block(start, stop)
                loss.add_(halves[start:stop] @ errors.square())
                if stop < width:
                    weight[stop:].addmm_(upper[start:stop, stop:].t(), errors, alpha=-1.0)
            yield stop / width
        return loss

    def _run(self, weight: Tensor, upper: Tensor, low: int, high: int, start: int) -> None:
        """Columns `low` to `high`, at most `INNER`, of a block that begins at `start`."""
        count = high - low
        self.piece[:count].copy_(weight[low:high])
        self._upper[:count, :count].copy_(upper[low:high, low:high])
        for i in range(count):
            error = self._error[low + i - start]
            self.settle(low + i, i, low + i - start, error)
            if i + 1 < count:
                self._rest[i].addr_(self._factor[i], error, alpha=-1)


def inner_ranges(start: int, stop: int, starts: Collection[int]) -> list[tuple[int, int]]:
    """A block cut into pieces of at most `INNER` columns; a group never starts inside one."""
    cuts = sorted({start, stop, *range(start, stop, INNER), *(i for i in range(start, stop) if i in starts)})
    return list(pairwise(cuts))
