"""GPTQ's arithmetic on one matrix, or on several that read the same inputs: columns in turn, errors passed on.

Frantar et al. 2022, "GPTQ". With H the mean of 2 x x^T, damped, and U the upper triangular matrix with
H^-1 = U^T U: for column i, e = (w_i - q_i) / U_ii, and every later column j gives w_j -= e U_ij.

Everything is held transposed, (column, row), so that a column is contiguous; rows are independent of one another, so
matrices of one Hessian are worked on as one. Errors reach the later columns in three steps that give the same sums:
inside `INNER` columns at once, then inside the block, then beyond it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lab.quantization.affine import Affine, affine_of_range
from lab.quantization.grid import Grid

INNER = 16
"""Columns whose errors are passed on one by one; later ones wait for a matrix product."""


class ColumnParameters:
    """Scale, step and offset of each group, ready for the column loop: rows of (group, row) tensors."""

    def __init__(self, grid: Grid, groups: int, rows: int, device: torch.device) -> None:
        self._grid = grid
        self.scale = torch.zeros(groups, rows, device=device)
        self.step = torch.full((groups, rows), torch.inf, device=device)
        self.offset = None if grid.zero_bits == 0 else torch.zeros(groups, rows, device=device)

    def set(self, group: int, affine: Affine) -> None:
        """Of one group: `affine` has (rows, 1) tensors."""
        self._put(slice(group, group + 1), affine)

    def set_all(self, affine: Affine) -> None:
        """Of all groups: `affine` has (rows, groups) tensors, or (1, 1) for a whole tensor."""
        self._put(slice(None), affine)

    def _put(self, where: slice, affine: Affine) -> None:
        self.scale[where] = affine.scale.t()
        # w / inf is 0: the code of a group that is kept at its offset, as in `encode_groups`.
        self.step[where] = torch.where(affine.scale > 0, affine.scale, torch.inf).t()
        if self.offset is not None and affine.offset is not None:
            self.offset[where] = affine.offset.t()

    def affine(self) -> Affine:
        """(rows, groups)."""
        return Affine(self.scale.t().contiguous(), None if self.offset is None else self.offset.t().contiguous())


@dataclass(frozen=True)
class Columns:
    """How columns, in the order in which they are taken, belong to groups.

    Attributes:
        group: of each column.
        starts: position to group, where a group's scale is taken from the weights as they then stand; empty for
            groups fixed before.
        size: of a group.
    """

    group: list[int]
    starts: dict[int, int]
    size: int


def solving(
    weight: Tensor, upper: Tensor, grid: Grid, plan: Columns, parameters: ColumnParameters, *, block: int
) -> Generator[float, None, tuple[Tensor, Tensor]]:
    """Quantize column after column. Yields the share done after each block.

    Args:
        weight: (in, rows) fp32, in the order of the columns; used up.
        upper: (in, in) U, in the same order; used up.
        block: columns whose errors wait before they reach the columns beyond.

    Returns:
        Codes, (in, rows) int16 in the order given, and each row's loss: the sum of e^2 / 2, (rows,).
    """
    width, rows = weight.shape
    codes = torch.empty(width, rows, dtype=torch.int16, device=weight.device)
    loss = torch.zeros(rows, device=weight.device)
    halves = upper.diagonal().square().mul_(2.0).reciprocal_()
    # From here on the errors are w - q, and the division by U_ii is in the row of U that they are multiplied with.
    upper.div_(upper.diagonal().clone()[:, None])
    loop = _Columns(grid, plan, parameters, rows, block, weight.device)
    for start in range(0, width, block):
        stop = min(start + block, width)
        with torch.no_grad():
            for low, high in inner_ranges(start, stop, plan.starts):
                if low in plan.starts:
                    loop.take_parameters(weight, upper, low, start, stop)
                loop.run(weight, upper, low, high, start)
                if high < stop:
                    weight[high:stop].addmm_(
                        upper[low:high, high:stop].t(), loop.errors[low - start : high - start], alpha=-1.0
                    )
            errors = loop.errors[: stop - start]
            codes[start:stop].copy_(loop.codes[: stop - start])
            loss.add_(halves[start:stop] @ errors.square())
            if stop < width:
                weight[stop:].addmm_(upper[start:stop, stop:].t(), errors, alpha=-1.0)
        yield stop / width
    return codes, loss


def inner_ranges(start: int, stop: int, starts: dict[int, int]) -> list[tuple[int, int]]:
    """A block cut into pieces of at most `INNER` columns; a group never starts inside one."""
    cuts = sorted({start, stop, *range(start, stop, INNER), *(i for i in range(start, stop) if i in starts)})
    return list(pairwise(cuts))


class _Columns:
    """The inner loop. All views are made once: at these sizes an operation costs its call, not its arithmetic.

    Attributes:
        codes, errors: (block, rows) fp32, of the current block.
    """

    def __init__(
        self, grid: Grid, plan: Columns, parameters: ColumnParameters, rows: int, block: int, device: torch.device
    ) -> None:
        self._grid, self._plan, self._parameters = grid, plan, parameters
        self.errors = torch.zeros(block, rows, device=device)
        self.codes = torch.zeros(block, rows, device=device)
        self._error, self._code = self.errors.unbind(0), self.codes.unbind(0)
        self._scale, self._step = parameters.scale.unbind(0), parameters.step.unbind(0)
        self._offset = None if parameters.offset is None else parameters.offset.unbind(0)
        # Shorter pieces leave old columns at the end of these; what is added to them is never read.
        self._weight = torch.zeros(INNER, rows, device=device)
        self._upper = torch.zeros(INNER, INNER, device=device)
        self._columns = self._weight.unbind(0)
        self._rest = [self._weight[i + 1 :] for i in range(INNER)]
        self._factor = [self._upper[i, i + 1 :] for i in range(INNER)]
        self._spare = torch.zeros(rows, device=device)

    def run(self, weight: Tensor, upper: Tensor, low: int, high: int, start: int) -> None:
        """Columns `low` to `high`, at most `INNER`, of a block that begins at `start`."""
        count = high - low
        self._weight[:count].copy_(weight[low:high])
        self._upper[:count, :count].copy_(upper[low:high, low:high])
        lowest, highest, spare = self._grid.lowest, self._grid.highest, self._spare
        asymmetric = self._grid.kind == "asymmetric"
        for i in range(count):
            group = self._plan.group[low + i]
            scale, step, w = self._scale[group], self._step[group], self._columns[i]
            code, error = self._code[low + i - start], self._error[low + i - start]
            if self._offset is None:
                torch.div(w, step, out=code).round_().clamp_(lowest, highest)
                torch.addcmul(w, code, scale, value=-1, out=error)
            elif asymmetric:
                torch.div(w, step, out=code).round_().add_(self._offset[group]).clamp_(lowest, highest)
                torch.sub(code, self._offset[group], out=spare)
                torch.addcmul(w, spare, scale, value=-1, out=error)
            else:
                torch.sub(w, self._offset[group], out=spare)
                torch.div(spare, step, out=code).round_().clamp_(lowest, highest)
                torch.addcmul(spare, code, scale, value=-1, out=error)
            if i + 1 < count:
                self._rest[i].addr_(self._factor[i], error, alpha=-1)

    def take_parameters(self, weight: Tensor, upper: Tensor, low: int, start: int, stop: int) -> None:
        """The scale of the group that starts at column `low`, from its weights with all earlier errors in them."""
        end = min(low + self._plan.size, weight.shape[0])
        group = weight[low:end]
        if end > stop and low > start:
            # The columns beyond the block have not had the errors of this block yet.
            group = group.clone()
            group[stop - low :].addmm_(upper[start:low, stop:end].t(), self.errors[: low - start], alpha=-1.0)
        least, most = torch.aminmax(group, dim=0)
        self._parameters.set(self._plan.starts[low], affine_of_range(least[:, None], most[:, None], self._grid))
