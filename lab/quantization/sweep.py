"""Rounding errors of one matrix on many grids at once: histograms, largest error, mean square.

What plain code spends its time on is passes over memory and `torch.histc`. Here some rows at a time stay in the cache
for all grids, transposed, so that a group's scale meets whole vectors; the ranges of large groups are made from those
of smaller ones; and errors become bin numbers, two of them one number, which `torch.bincount` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.models.linear import check_weight
from lab.quantization.affine import Affine, affine_of_range
from lab.quantization.grid import SMALLEST_NORMAL, Grid
from lab.quantization.rounding_errors import BINS, BLOCK, Errors, checked_limit, power_above
from lab.steps import finished

_SLACK = 1.02
"""Of the limit: rounding may carry an error a little beyond half a step."""


@dataclass(frozen=True, kw_only=True)
class Swept(Errors):
    """Errors of rounding to nearest on one grid.

    Attributes:
        grid: the grid.
        largest_scale: of all groups.
    """

    grid: Grid
    largest_scale: float

    @property
    def bound(self) -> float:
        """Half the largest scale: no weight is further from a level, but for rounding in the last digits."""
        return self.largest_scale / 2


def limit_of(low: float, high: float, grid: Grid) -> float:
    """A power of two above every error of a matrix that reaches from `low` to `high`, whatever its groups."""
    scale = affine_of_range(torch.tensor([[low]]), torch.tensor([[high]]), grid).scale
    return power_above(float(scale) / 2 * _SLACK)


def sweeping(
    weight: Tensor, grids: Sequence[Grid], limit: float | None = None
) -> Generator[float, None, tuple[Swept, ...]]:
    """Round `weight`, (out, in), to nearest on each grid; yields the share done after each block and grid (a few ms).

    Args:
        limit: of all histograms, a power of two; None: for each grid `limit_of` the matrix, which is the same for all
            group sizes of a kind and width.

    Raises:
        BadInput: a weight that is not finite, a group size that does not fit, scales beyond their format, or a limit
            that is no power of two or too small for an error.
    """
    check_weight(weight)
    weight = weight.detach()
    low, high = (float(end) for end in torch.aminmax(weight))
    limits = [limit_of(low, high, grid) if limit is None else checked_limit(limit) for grid in grids]
    tallies = [_Tally(grid, limits[i], weight) for i, grid in enumerate(grids)]
    rows, columns = weight.shape
    step = max(1, BLOCK // columns)
    work = _Work(weight, step, low, high)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        work.load(slice(start, stop))
        for tally in tallies:
            work.count(tally)
            yield stop / rows
    return tuple(tally.swept(work.signal_energy) for tally in tallies)


def swept(weight: Tensor, grids: Sequence[Grid], limit: float | None = None) -> tuple[Swept, ...]:
    """As `sweeping`, at once."""
    return finished(sweeping(weight, grids, limit))


class _Tally:
    """What one grid has gathered so far."""

    def __init__(self, grid: Grid, limit: float, weight: Tensor) -> None:
        self.grid, self.limit = grid, limit
        self.size = grid.group_size(weight.shape[1])
        self.counts = torch.zeros(BINS, dtype=torch.int64, device=weight.device)
        self.row_errors = torch.empty(weight.shape[0], device=weight.device)
        self.energy = 0.0
        self.largest_scale = 0.0
        self.weights = weight.numel()

    def swept(self, signal_energy: float) -> Swept:
        return Swept(
            grid=self.grid,
            limit=self.limit,
            counts=self.counts,
            row_errors=self.row_errors,
            error_energy=self.energy,
            signal_energy=signal_energy,
            largest_scale=self.largest_scale,
            weights=self.weights,
        )


class _Work:
    """Some rows, transposed, the ranges of their groups, and the buffers to round them in.

    Args:
        step: rows taken at a time.
        low, high: the range of the whole matrix.
    """

    def __init__(self, weight: Tensor, step: int, low: float, high: float) -> None:
        self.weight = weight
        size, device = min(step, weight.shape[0]) * weight.shape[1], weight.device
        self._values = torch.empty(size, device=device)
        self._errors = torch.empty(size, device=device)
        self._wide = torch.empty(size, dtype=torch.float64, device=device)
        self._numbers = torch.empty(size, dtype=torch.int16, device=device)
        self._middle = torch.tensor(BINS / 2, device=device)
        self._whole = (torch.tensor([[low]], device=device), torch.tensor([[high]], device=device))
        self._rows = slice(0)
        self._ranges: dict[int, tuple[Tensor, Tensor]] = {}
        self.signal_energy = 0.0

    def load(self, rows: slice) -> None:
        """Take these rows into the buffers."""
        part = self.weight[rows]
        values = self._values[: part.numel()].view(part.shape[1], part.shape[0])
        values.copy_(part.T)
        self._rows, self._ranges = rows, {1: (values, values)}
        self.signal_energy += self._energy(values)

    def count(self, tally: _Tally) -> None:
        """Round what is loaded on a grid and count its errors."""
        values = self._ranges[1][0]
        low, high = self._whole if tally.grid.share == "tensor" else _range(self._ranges, tally.size)
        affine = affine_of_range(low, high, tally.grid)
        tally.largest_scale = max(tally.largest_scale, float(affine.scale.max()))
        errors = self._errors[: values.numel()].view(values.shape)
        round_to(values, affine, tally.grid, tally.size, out=errors)
        torch.sub(values, errors, out=errors)
        tally.energy += self._energy(errors)
        torch.maximum(errors.amax(0), errors.amin(0).neg_(), out=tally.row_errors[self._rows])
        worst = float(tally.row_errors[self._rows].max())
        if not worst < tally.limit:
            raise BadInput(
                f"An error of {worst:.3g} is beyond the histogram's limit of {tally.limit:.3g}.",
                remedy="Take `limit_of` the matrix.",
            )
        torch.add(self._middle, errors, alpha=BINS / 2 / tally.limit, out=errors)
        numbers = self._numbers[: values.numel()]
        numbers.copy_(errors.view(-1))
        tally.counts += _counted(numbers)

    def _energy(self, values: Tensor) -> float:
        wide = self._wide[: values.numel()]
        wide.copy_(values.view(-1))
        return float(torch.dot(wide, wide))


def _range(known: dict[int, tuple[Tensor, Tensor]], size: int) -> tuple[Tensor, Tensor]:
    """The ranges of groups of `size` columns, (groups, rows), from the coarsest known ones that fit in them."""
    if size not in known:
        finer = max(other for other in known if size % other == 0)
        low, high = known[finer]
        known[size] = _joined(low, size // finer, torch.amin), _joined(high, size // finer, torch.amax)
    return known[size]


def _joined(ends: Tensor, count: int, join: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The ends of each `count` neighbours, and of what is left of them."""
    groups, rows = ends.shape
    whole = groups // count
    joined = join(ends[: whole * count].view(whole, count, rows), 1)
    return joined if whole * count == groups else torch.cat((joined, join(ends[whole * count :], 0)[None]))


def round_to(values: Tensor, affine: Affine, grid: Grid, size: int, out: Tensor) -> None:
    """Write the nearest levels of `values` to `out`, both (columns, rows); the same arithmetic as `encode_groups`.

    Args:
        affine: (groups, rows), groups of `size` columns, the last one may be smaller; or (1, 1).
    """
    columns, rows = values.shape
    step = affine.scale.clamp(min=SMALLEST_NORMAL)  # a scale is 0 only where there is nothing to divide
    first = 0
    whole = columns // size * size
    for run, count in ((slice(0, whole), size), (slice(whole, columns), columns - whole)):
        if run.start == run.stop:
            continue
        groups, found = (t[run].view(-1, count, rows) for t in (values, out))
        here = slice(None) if step.numel() == 1 else slice(first, first + groups.shape[0])
        first += groups.shape[0]
        scale, divisor = affine.scale[here, None], step[here, None]
        if affine.offset is None:
            torch.div(groups, divisor, out=found).round_()
            if grid.kind == "full_range":  # the other reaches no code beyond its own
                found.clamp_(grid.lowest, grid.highest)
            found.mul_(scale)
        elif grid.kind == "asymmetric":
            offset = affine.offset[here, None]
            torch.div(groups, divisor, out=found).round_().add_(offset).clamp_(grid.lowest, grid.highest)
            found.sub_(offset).mul_(scale)
        else:
            offset = affine.offset[here, None]
            torch.sub(groups, offset, out=found).div_(divisor).round_().clamp_(grid.lowest, grid.highest)
            found.mul_(scale).add_(offset)


def _counted(numbers: Tensor) -> Tensor:
    """(BINS,) how often each of the numbers 0 to BINS - 1 occurs; overwrites them."""
    half = numbers.numel() // 2
    pairs = numbers[:half].mul_(BINS).add_(numbers[half : 2 * half])
    together = torch.bincount(pairs, minlength=BINS * BINS).view(BINS, BINS)
    counts = together.sum(0).add_(together.sum(1))
    return counts if numbers.numel() == 2 * half else counts + torch.bincount(numbers[-1:], minlength=BINS)
