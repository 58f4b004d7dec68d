"""How much of each group's range the levels cover: all of it, or less, so that the levels lie closer.

A clipped weight is off by more than half a step, the others by less. Searching the ratio with the least output error
is AWQ's (Lin et al. 2024); the least weight error is the usual "MSE" observer's.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.quantization.affine import affine_of_range, decode_groups, encode_groups, shrunk
from lab.quantization.grid import Grid

How = Literal["none", "ratio", "percentile", "weight_error", "output_error"]
HOWS: tuple[How, ...] = ("none", "ratio", "percentile", "weight_error", "output_error")

RATIOS = tuple(1.0 - 0.025 * step for step in range(21))
"""Tried by the searches, 1 to 0.5. Of equal ones the first, the widest range, is taken."""

PIECE = 2**17
"""Weights worked on at a time: with its copies (fp32) it stays in a core's cache, and each takes a few ms."""

Range = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Clip:
    """A rule for the range of each group.

    Attributes:
        how: "none"; "ratio": both ends times `amount`; "percentile": `amount` % of a group's weights lie inside
            (of |w| for the symmetric kinds, else half of the rest beyond either end; a group of which that would leave
            a single value, as of mostly zeros, keeps its full range); "weight_error": the ratio of
            `RATIOS` with the least sum of (w - w')^2; "output_error": the one with the least sum of (x (w - w'))^2
            over calibration inputs x, each group by itself.
        amount: of "ratio", above 0 to 1; of "percentile", 50 to 100.

    Raises:
        BadInput: outside these limits.
    """

    how: How = "none"
    amount: float = 1.0

    none: ClassVar[Clip]

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise BadInput(f"There is no clipping {shown(self.how)}.", remedy=f"Choose one of {', '.join(HOWS)}.")
        number = isinstance(self.amount, int | float) and not isinstance(self.amount, bool)
        if self.how == "ratio" and not (number and 0 < self.amount <= 1):
            raise BadInput(
                f"A clipping ratio is above 0 and at most 1, not {shown(self.amount)}.", remedy="Choose 0.5 to 1."
            )
        if self.how == "percentile" and not (number and 50 <= self.amount <= 100):
            raise BadInput(
                f"A clipping percentile is 50 to 100, not {shown(self.amount)}.", remedy="Choose 99, or 100 for none."
            )

    @property
    def searches(self) -> bool:
        """Whether ratios are tried one by one."""
        return self.how in ("weight_error", "output_error")


Clip.none = Clip()


def parts(columns: int, grid: Grid) -> tuple[tuple[slice, int], ...]:
    """The columns of a matrix as runs of equal groups: (columns, group size). A smaller last group is a run."""
    size = grid.group_size(columns)
    whole = columns // size * size
    runs = ((slice(0, whole), size),) if whole else ()
    return runs if whole == columns else (*runs, (slice(whole, columns), columns - whole))


def pieces(weight: Tensor) -> Iterator[slice]:
    """Runs of rows with about `PIECE` weights; all groups of a row are in one piece."""
    rows, columns = weight.shape
    step = max(1, PIECE // columns)
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def clipped_ranges(
    weight: Tensor, grid: Grid, clip: Clip, inputs: LayerInputs | None = None
) -> Generator[float, None, Range]:
    """The range of each group: (rows, groups) twice, (1, 1) for a whole tensor; pauses between pieces.

    Args:
        weight: (out, in), checked.
        inputs: for "output_error"; its `hessian` is taken if it is there, else its `rows`.

    Raises:
        BadInput: a group size that does not fit, or inputs that are missing.
    """
    if clip.how == "output_error" and inputs is None:
        raise BadInput("Clipping for the least output error needs calibration inputs.", remedy="Give calibration text.")
    if clip.how == "percentile":
        return (yield from _percentiles(weight, grid, clip.amount))
    low, high = yield from _full(weight, grid)
    if clip.how == "none":
        return low, high
    if clip.how == "ratio":
        return shrunk(low, high, grid, clip.amount)
    products = None if clip.how == "weight_error" else _products(inputs, weight.shape[1], grid)
    ratios = yield from _searched(weight, grid, (low, high), products)
    return shrunk(low, high, grid, ratios)


def _full(weight: Tensor, grid: Grid) -> Generator[float, None, Range]:
    lows: list[Tensor] = []
    highs: list[Tensor] = []
    for piece in pieces(weight):
        ranges = [
            torch.aminmax(weight[piece, run].float().reshape(piece.stop - piece.start, -1, size), dim=-1)
            for run, size in parts(weight.shape[1], grid)
        ]
        lows.append(torch.cat([low for low, _ in ranges], dim=1))
        highs.append(torch.cat([high for _, high in ranges], dim=1))
        yield 0.0
    low, high = torch.cat(lows), torch.cat(highs)
    return (low.amin().view(1, 1), high.amax().view(1, 1)) if grid.share == "tensor" else (low, high)


def _percentiles(weight: Tensor, grid: Grid, percent: float) -> Generator[float, None, Range]:
    symmetric = grid.kind in ("absmax", "full_range")
    share = percent / 100
    if grid.share == "tensor":
        flat = weight.detach().float().reshape(1, 1, -1)
        return _ends(flat, share, symmetric)
    lows: list[Tensor] = []
    highs: list[Tensor] = []
    for piece in pieces(weight):
        ends = [
            _ends(weight[piece, run].float().reshape(piece.stop - piece.start, -1, size), share, symmetric)
            for run, size in parts(weight.shape[1], grid)
        ]
        lows.append(torch.cat([low for low, _ in ends], dim=1))
        highs.append(torch.cat([high for _, high in ends], dim=1))
        yield 0.0
    return torch.cat(lows), torch.cat(highs)


def _ends(groups: Tensor, share: float, symmetric: bool) -> Range:
    if symmetric:
        reach = _quantile(groups.abs(), share)
        # A reach of 0 would make every weight 0, however large.
        reach = torch.where(reach > 0, reach, groups.abs().amax(dim=-1))
        return -reach, reach
    low, high = _quantile(groups, (1 - share) / 2), _quantile(groups, (1 + share) / 2)
    ends = torch.aminmax(groups, dim=-1)
    return torch.where(low < high, low, ends.min), torch.where(low < high, high, ends.max)


def _quantile(groups: Tensor, share: float) -> Tensor:
    """The `share` quantile along the last axis, linear between neighbours; `torch.quantile` refuses 2^24 numbers."""
    place = share * (groups.shape[-1] - 1)
    below = math.floor(place)
    lower = torch.kthvalue(groups, below + 1, dim=-1).values
    if place == below:
        return lower
    upper = torch.kthvalue(groups, below + 2, dim=-1).values
    return lower + (upper - lower) * (place - below)


def _products(inputs: LayerInputs | None, columns: int, grid: Grid) -> tuple[Tensor, ...]:
    """For each run of groups: (groups, size, size), the sum of x x^T over inputs, up to a factor."""
    assert inputs is not None  # noqa: S101 - the caller looked
    given = inputs.hessian if inputs.hessian is not None else inputs.rows
    if given.shape[-1] != columns or not given.shape[0]:
        raise BadInput(
            f"The calibration inputs have the shape {tuple(given.shape)}, and the matrix takes {columns} numbers.",
            remedy="Collect the inputs of this very layer, from at least one token.",
        )
    found = []
    for run, size in parts(columns, grid):
        if inputs.hessian is not None:
            starts = range(run.start, run.stop, size)
            found.append(torch.stack([inputs.hessian[s : s + size, s : s + size] for s in starts]).float())
        else:
            x = inputs.rows[:, run].float().reshape(len(inputs.rows), -1, size).transpose(0, 1)
            found.append(x.transpose(1, 2) @ x)
    return tuple(found)


def _searched(
    weight: Tensor, grid: Grid, ranges: Range, products: tuple[Tensor, ...] | None
) -> Generator[float, None, Tensor]:
    """The best ratio of each group, (rows, groups) or (1, 1)."""
    if grid.share == "tensor":
        totals = []
        for done, ratio in enumerate(RATIOS):
            total = 0.0
            for piece in pieces(weight):
                total += float(_errors(weight[piece], grid, ranges, ratio, products).sum(dtype=torch.float64))
                yield done / len(RATIOS)
            totals.append(total)
        return torch.full((1, 1), RATIOS[min(range(len(RATIOS)), key=totals.__getitem__)], device=weight.device)
    found: list[Tensor] = []
    for piece in pieces(weight):
        rows = weight[piece]
        here = (ranges[0][piece], ranges[1][piece])
        best = _errors(rows, grid, here, RATIOS[0], products)
        ratios = torch.ones_like(best)
        for ratio in RATIOS[1:]:
            errors = _errors(rows, grid, here, ratio, products)
            better = errors < best
            best = torch.where(better, errors, best)
            ratios = torch.where(better, ratio, ratios)
            yield piece.start / weight.shape[0]
        found.append(ratios)
    return torch.cat(found)


def _errors(weight: Tensor, grid: Grid, ranges: Range, ratio: float, products: tuple[Tensor, ...] | None) -> Tensor:
    """The error of each group of some rows, (rows, groups)."""
    affine = affine_of_range(*shrunk(*ranges, grid, ratio), grid)
    found = []
    first = 0
    for number, (run, size) in enumerate(parts(weight.shape[1], grid)):
        groups = weight[:, run].float().reshape(weight.shape[0], -1, size)
        own = affine.part(groups=slice(first, first + groups.shape[1]))
        first += groups.shape[1]
        change = decode_groups(encode_groups(groups, own, grid), own, grid).sub_(groups)
        if products is None:
            found.append(change.square_().sum(dim=-1))
        else:
            change = change.transpose(0, 1)  # (groups, rows, size)
            found.append((change @ products[number]).mul_(change).sum(dim=-1).T)
    return torch.cat(found, dim=1)
