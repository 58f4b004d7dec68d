"""One matrix before and after rounding: error histograms of several grids on shared axes, outliers, one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.models.linear import check_weight
from lab.quantization.affine import AffineWeight
from lab.quantization.grid import Grid
from lab.quantization.nearest import Nearest
from lab.quantization.rounding_errors import Errors
from lab.quantization.sweep import Swept, limit_of, swept
from lab.steps import finished


@dataclass(frozen=True)
class Outlier:
    """A weight that came back far from what it was.

    Attributes:
        row, column: its place.
        value: what it was.
        became: what it is now.
    """

    row: int
    column: int
    value: float
    became: float

    @property
    def error(self) -> float:
        """Signed."""
        return self.value - self.became


@dataclass(frozen=True)
class GroupView:
    """One group of a row, before and after.

    Attributes:
        start: its first column.
        before, after: its weights.
        codes: its codes.
        scale: its scale.
        offset: its zero point or minimum; None for the symmetric kinds.
        lowest, highest: the codes that the grid has.
    """

    start: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    codes: tuple[int, ...]
    scale: float
    offset: float | None
    lowest: int
    highest: int


def compare(weight: Tensor, grids: Sequence[Grid]) -> tuple[Swept, ...]:
    """The errors of rounding `weight`, (out, in), to nearest on each grid; all histograms have the same edges.

    Raises:
        BadInput: as `sweeping`.
    """
    check_weight(weight)
    low, high = (float(end) for end in torch.aminmax(weight.detach()))
    return swept(weight, grids, max((limit_of(low, high, grid) for grid in grids), default=None))


def worst_on_grid(weight: Tensor, found: Swept, count: int = 8) -> tuple[Outlier, ...]:
    """The `count` weights with the largest |e| on a grid, largest first. Only the rows that hold them are rounded."""
    rows = _worst_rows(found, count)
    part = weight.detach()[rows]
    if found.grid.share == "tensor":
        after = finished(Nearest(found.grid).quantize(weight)).dequantize()[rows]
    else:
        after = finished(Nearest(found.grid).quantize(part)).dequantize()
    return _worst(part, after, rows, count)


def worst(weight: Tensor, after: Tensor, found: Errors, count: int = 8) -> tuple[Outlier, ...]:
    """The same for any method: `found` is `errors_of(weight, after)`."""
    rows = _worst_rows(found, count)
    return _worst(weight.detach()[rows], after[rows], rows, count)


def _worst_rows(found: Errors, count: int) -> Tensor:
    return torch.topk(found.row_errors, min(count, found.row_errors.numel())).indices


def _worst(before: Tensor, after: Tensor, rows: Tensor, count: int) -> tuple[Outlier, ...]:
    before, after = before.float().reshape(-1), after.reshape(-1)
    columns = before.numel() // len(rows)
    places = torch.topk((before - after).abs(), min(count, before.numel())).indices
    found = zip(places.tolist(), before[places].tolist(), after[places].tolist(), strict=True)
    row = rows.tolist()
    return tuple(Outlier(row[at // columns], at % columns, value, became) for at, value, became in found)


def group_before_after(weight: Tensor, grid: Grid, row: int, group: int) -> GroupView:
    """One group of `weight`, (out, in), rounded to nearest on `grid`.

    Args:
        row: from 0.
        group: from 0, along the row. "row" and "tensor" have one group a row, here of that row's weights.

    Raises:
        BadInput: no such row or group; a group size that does not fit.
    """
    rows, columns = weight.shape
    groups = grid.groups(columns)
    if not 0 <= row < rows or not 0 <= group < groups:
        raise BadInput(
            f"There is no group {group} in row {row}: the matrix has {rows:,} rows of {groups:,} groups.",
            remedy=f"Choose a row from 0 to {rows - 1} and a group from 0 to {groups - 1}.",
        )
    whole = weight if grid.share == "tensor" else weight[row : row + 1]
    made = finished(Nearest(grid).quantize(whole))
    assert isinstance(made, AffineWeight)  # noqa: S101 - what Nearest makes
    at = row if grid.share == "tensor" else 0
    start = group * grid.group_size(columns)
    here = slice(start, min(start + grid.group_size(columns), columns))
    affine = made.affine.part(slice(0, 1), slice(group, group + 1))
    return GroupView(
        start=start,
        before=tuple(weight[row, here].float().tolist()),
        after=tuple(made.dequantize()[at, here].tolist()),
        codes=tuple(made.codes[at, here].tolist()),
        scale=float(affine.scale),
        offset=None if affine.offset is None else float(affine.offset),
        lowest=grid.lowest,
        highest=grid.highest,
    )
