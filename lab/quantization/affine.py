"""Scales, zero points and codes of a grid: the arithmetic that every affine method shares.

Round to nearest (ties to even, as `torch.round`), scales in fp32 rounded up to their stored format before a code is
made. Groups lie along the input; a smaller last group is padded with its own last weight, which changes neither its
minimum nor its maximum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.quantization.grid import SCALE_BITS, Grid
from lab.quantization.quantized import Storage

_FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
_NOISE = 2.0**-20
"""Relative: what fp32 may leave of a scale that was a number of its format once."""


@dataclass(frozen=True)
class Affine:
    """Scales and zero points of a matrix's groups.

    Attributes:
        scale: (rows, groups) fp32 as stored; (1, 1) for a whole tensor. 0 where all of a group is one level.
        offset: (rows, groups) fp32: the integer zero point of "asymmetric", the minimum of "float_minimum"; None for
            the symmetric kinds.
    """

    scale: Tensor
    offset: Tensor | None = None

    def part(self, rows: slice = slice(None), groups: slice = slice(None)) -> Affine:
        """Those of some rows and groups; of a whole tensor's (1, 1), the same again."""
        if self.scale.numel() == 1:
            return self
        return Affine(self.scale[rows, groups], None if self.offset is None else self.offset[rows, groups])


def grouped(weight: Tensor, grid: Grid) -> Tensor:
    """(rows, groups, size) fp32 view or copy of `weight`, (rows, columns); (1, 1, all) for a whole tensor."""
    weight = weight.detach().float()
    if grid.share == "tensor":
        return weight.reshape(1, 1, -1)
    rows, columns = weight.shape
    size = grid.group_size(columns)
    short = -columns % size
    if short:
        weight = torch.cat((weight, weight[:, -1:].expand(rows, short)), dim=1)
    return weight.reshape(rows, -1, size)


def ungrouped(groups: Tensor, shape: tuple[int, int]) -> Tensor:
    """The inverse of `grouped`: (rows, columns), padding gone."""
    rows, columns = shape
    return groups.reshape(rows, -1)[:, :columns]


def affine_of_range(low: Tensor, high: Tensor, grid: Grid) -> Affine:
    """Scales and zero points for groups that reach from `low` to `high`, both (rows, groups) fp32.

    Stored scales are rounded up and minima down, so that the levels still reach both ends: no weight of the range is
    more than s / 2 from a level. A scale below the smallest normal number of its format is raised to it; it is 0 only
    where the range is a single point, which then is the group's level: 0, or its minimum.

    Raises:
        BadInput: a scale or minimum beyond what its format can hold.
    """
    levels = grid.highest - grid.lowest
    offset: Tensor | None = None
    if grid.kind == "absmax":
        scale = torch.maximum(low.abs(), high.abs()) / grid.highest
    elif grid.kind == "full_range":
        scale = torch.maximum(low.abs(), high.abs()) / (levels / 2)
    else:
        if grid.kind == "asymmetric":
            low, high = low.clamp(max=0.0), high.clamp(min=0.0)
        else:
            low = offset = _stored_down(low, grid)
        scale = (high / 2 - low / 2) / (levels / 2)  # halves: the difference itself could overflow
    scale = _stored_up(scale, grid)
    if grid.kind == "asymmetric":
        offset = torch.where(scale > 0, -low / scale, 0.0).round_().clamp_(0, levels)
    return Affine(scale, offset)


def shrunk(low: Tensor, high: Tensor, grid: Grid, ratio: float | Tensor) -> tuple[Tensor, Tensor]:
    """A range made smaller by `ratio`, a number or (rows, groups): towards zero, or for "float_minimum" its middle."""
    if grid.kind != "float_minimum":
        return low * ratio, high * ratio
    margin = (high / 2 - low / 2) * (1.0 - ratio)
    return low + margin, high - margin


def affine_of(weight: Tensor, grid: Grid, ratio: float | Tensor = 1.0) -> Affine:
    """Scales and zero points of `weight`, (rows, columns).

    Args:
        ratio: each group's range is made smaller by it before the scale is taken, see `shrunk`: a number, or
            (rows, groups). Weights beyond are clipped.
    """
    low, high = torch.aminmax(grouped(weight, grid), dim=-1)
    return affine_of_range(*shrunk(low, high, grid, ratio), grid)


def encode_groups(groups: Tensor, affine: Affine, grid: Grid) -> Tensor:
    """(rows, groups, size) fp32 codes, whole numbers, of `grouped` weights; 0 where the scale is 0."""
    scale = affine.scale[..., None]
    step = torch.where(scale > 0, scale, torch.inf)  # x / inf is 0: the code of a group that is kept at its offset
    if affine.offset is None:
        codes = (groups / step).round_()
    elif grid.kind == "asymmetric":
        codes = (groups / step).round_().add_(affine.offset[..., None])
    else:
        codes = ((groups - affine.offset[..., None]) / step).round_()
    return codes.clamp_(grid.lowest, grid.highest)


def decode_groups(codes: Tensor, affine: Affine, grid: Grid) -> Tensor:
    """(rows, groups, size) fp32 weights of codes."""
    scale = affine.scale[..., None]
    if affine.offset is None:
        return codes * scale
    offset = affine.offset[..., None]
    return (codes - offset) * scale if grid.kind == "asymmetric" else codes * scale + offset


@dataclass(frozen=True)
class AffineWeight:
    """A `Quantized` matrix on an affine grid.

    Attributes:
        grid: its levels and groups.
        shape: (out, in).
        codes: (out, in) int16, `grid.lowest` to `grid.highest`.
        affine: scales and zero points.
        order: (in,) int64 or None: column i belongs to group `order[i]`, where groups were not taken from neighbours.
        channel_scales: (in,) fp32 or None: what each column was multiplied by before its codes were made, where
            that was not folded into what stands before.
        notes: see `Quantized`.
    """

    grid: Grid
    shape: tuple[int, int]
    codes: Tensor
    affine: Affine
    order: Tensor | None = None
    channel_scales: Tensor | None = None
    notes: tuple[str, ...] = ()

    @property
    def storage(self) -> Storage:
        """See `Quantized`: a group index and a channel scale take 32 bits each."""
        grid, groups = self.grid, self.affine.scale.numel()
        other = 0 if self.order is None else 32 * self.order.numel()
        other += 0 if self.channel_scales is None else 32 * self.channel_scales.numel()
        return Storage(
            weights=self.shape[0] * self.shape[1],
            code_bits=grid.bits * self.shape[0] * self.shape[1],
            scale_bits=SCALE_BITS[grid.scale_format] * groups,
            zero_bits=grid.zero_bits * groups,
            other_bits=other,
        )

    def tensors(self) -> dict[str, Tensor]:
        """See `Quantized`."""
        found = {"codes": self.codes, "scales": self.affine.scale}
        named = {"zeros": self.affine.offset, "order": self.order, "channel_scales": self.channel_scales}
        return {**found, **{name: tensor for name, tensor in named.items() if tensor is not None}}

    def dequantize(self) -> Tensor:
        """See `Quantized`."""
        if self.order is not None:
            scale, offset = (None if t is None else t[:, self.order] for t in (self.affine.scale, self.affine.offset))
            assert scale is not None  # noqa: S101 - there always is one
            codes = self.codes.float()
            if offset is None:
                weight = codes * scale
            else:
                weight = (codes - offset) * scale if self.grid.kind == "asymmetric" else codes * scale + offset
        else:
            weight = ungrouped(decode_groups(grouped(self.codes, self.grid), self.affine, self.grid), self.shape)
        return weight if self.channel_scales is None else weight / self.channel_scales


def smallest_scale(grid: Grid) -> float:
    """The smallest scale but 0 that a grid can store."""
    return float(torch.finfo(_FORMATS[grid.scale_format]).tiny)


def _stored_up(values: Tensor, grid: Grid) -> Tensor:
    """Scales, 0 or more, rounded up to their format, in fp32: none is below its smallest normal number but 0 itself."""
    form, kept = _rounded(values, grid)
    if form.itemsize == 2:
        # What exceeds a number of the format by fp32's own rounding only is that number: a grid finds itself again.
        short = kept.float() < values * (1.0 - _NOISE)
        kept = (kept.view(torch.int16) + short).view(form)
    return kept.float().clamp(min=torch.finfo(form).tiny).mul_(values > 0)


def _stored_down(values: Tensor, grid: Grid) -> Tensor:
    """Minima rounded down to their format, in fp32; magnitudes below the smallest normal number are 0 or minus it."""
    form, kept = _rounded(values, grid)
    tiny = torch.finfo(form).tiny
    if form.itemsize == 2:
        # Of two bytes read as an integer, one more is the next number away from zero.
        step = torch.where(values < 0, 1, -1).to(torch.int16) * (kept.float() > values)
        kept = (kept.view(torch.int16) + step).view(form)
    wide = kept.float()
    small = torch.where(values < 0, -tiny, 0.0)
    return torch.where(wide.abs() < tiny, small, wide)


def _rounded(values: Tensor, grid: Grid) -> tuple[torch.dtype, Tensor]:
    form = _FORMATS[grid.scale_format]
    info = torch.finfo(form)
    # `not <=` also holds for NaN
    worst = float(values.abs().max())
    if not worst <= info.max:
        other = "Store scales as float32." if grid.scale_format != "float32" else "Use weights of a usual size."
        raise BadInput(
            f"A scale or minimum of {worst:.3g} is beyond {grid.scale_format}, whose largest number is {info.max:.3g}.",
            remedy=other,
        )
    return form, values.to(form)
