"""GPTQ's rounding of one matrix, or of several that read the same inputs, column after column.

Frantar et al. 2022, "GPTQ". How errors are passed on, and the layout: `lab.calibration.columns`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.calibration.columns import ColumnLoop
from lab.quantization.affine import Affine, affine_of_range
from lab.quantization.grid import Grid


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
    loop = _Rounding(grid, plan, parameters, weight.shape, block, weight.device)
    loss = yield from loop.solving(weight, upper, plan.starts)
    return loop.codes, loss


class _Rounding(ColumnLoop):
    """Columns rounded to codes.

    Attributes:
        codes: (in, rows) int16.
    """

    def __init__(
        self,
        grid: Grid,
        plan: Columns,
        parameters: ColumnParameters,
        shape: tuple[int, ...],
        block: int,
        device: torch.device,
    ) -> None:
        width, rows = shape
        super().__init__(rows, block, device)
        self._grid, self._plan, self._parameters = grid, plan, parameters
        self.codes = torch.empty(width, rows, dtype=torch.int16, device=device)
        self._block = torch.zeros(block, rows, device=device)
        self._code = self._block.unbind(0)
        self._scale, self._step = parameters.scale.unbind(0), parameters.step.unbind(0)
        self._offset = None if parameters.offset is None else parameters.offset.unbind(0)
        self._lowest, self._highest, self._asymmetric = grid.lowest, grid.highest, grid.kind == "asymmetric"
        self._spare = torch.zeros(rows, device=device)

    def settle(self, column: int, i: int, place: int, error: Tensor) -> None:
        lowest, highest, spare = self._lowest, self._highest, self._spare
        group = self._plan.group[column]
        scale, step, w, code = self._scale[group], self._step[group], self.columns[i], self._code[place]
        if self._offset is None:
            torch.div(w, step, out=code).round_().clamp_(lowest, highest)
            torch.addcmul(w, code, scale, value=-1, out=error)
        elif self._asymmetric:
            torch.div(w, step, out=code).round_().add_(self._offset[group]).clamp_(lowest, highest)
            torch.sub(code, self._offset[group], out=spare)
            torch.addcmul(w, spare, scale, value=-1, out=error)
        else:
            torch.sub(w, self._offset[group], out=spare)
            torch.div(spare, step, out=code).round_().clamp_(lowest, highest)
            torch.addcmul(spare, code, scale, value=-1, out=error)

    def end_block(self, start: int, stop: int) -> None:
        self.codes[start:stop].copy_(self._block[: stop - start])

    def begin_group(self, weight: Tensor, upper: Tensor, column: int, start: int, stop: int) -> None:
        """The scale of the group that starts at `column`, from its weights with all earlier errors in them."""
        end = min(column + self._plan.size, weight.shape[0])
        group = weight[column:end]
        if end > stop and column > start:
            # The columns beyond the block have not had the errors of this block yet.
            group = group.clone()
            group[stop - column :].addmm_(upper[start:column, stop:end].t(), self.errors[: column - start], alpha=-1.0)
        least, most = torch.aminmax(group, dim=0)
        self._parameters.set(self._plan.starts[column], affine_of_range(least[:, None], most[:, None], self._grid))
