"""Quantization once more, group by group in plain Python: what the proof compares with.

Nothing here uses the arithmetic of `lab.quantization`: numbers are Python's own float64, one at a time, from the
definitions of the grids (`lab.quantization.grid.Kind`), of NF4 (Dettmers et al. 2023, appendix E) and of the number
formats.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from lab.quantization.grid import Grid

ROUNDING = 2.0**-22
"""Of two fp32 operations beside one float64 one, relative to the largest number in them."""
STORED = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22}
"""Between neighbours of a scale's format, relative."""

SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126}
"""Normal numbers: no scale but 0 is smaller."""

NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Some weights that share a scale, as a run has them.

    Attributes:
        before: the dense weights. codes, scale, offset: of the file. after: the weights that really run.
        low, high: the range of all weights that share the scale.
        channel_scales: what each weight was multiplied by before its code was made; () for nothing.
    """

    before: Sequence[float]
    codes: Sequence[int]
    scale: float
    offset: float | None
    after: Sequence[float]
    low: float
    high: float
    channel_scales: Sequence[float] = ()


def wrong_value(group: Group, grid: Grid, rounding: float = ROUNDING) -> str:
    """What in `after` is not the value of its code; "" if all are. `rounding`: of the dtype that runs, relative."""
    factors = group.channel_scales or [1.0] * len(group.codes)
    for code, value, factor in zip(group.codes, group.after, factors, strict=True):
        if not grid.lowest <= code <= grid.highest:
            return f"a code is {code}, outside {grid.lowest} to {grid.highest}"
        expected = value_of(code, group.scale, group.offset, grid) / factor
        size = abs(code * group.scale / factor) + abs((group.offset or 0.0) / factor)
        if grid.kind == "asymmetric":
            size = abs(expected)
        if abs(value - expected) > rounding * size:
            return f"code {code} at scale {group.scale:.6g} is {expected:.6g}, and {value:.6g} runs"
    return ""


def value_of(code: int, scale: float, offset: float | None, grid: Grid) -> float:
    """The weight that a code stands for."""
    if grid.kind == "asymmetric":
        return (code - (offset or 0.0)) * scale
    return code * scale + (offset or 0.0)


def wrong_scale(group: Group, grid: Grid) -> str:
    """Why the scale is not the one that the whole range asks for; "" if it is, to one step of its format."""
    low, high = group.low, group.high
    levels = grid.highest - grid.lowest
    if grid.kind == "absmax":
        wanted = max(abs(low), abs(high)) / grid.highest
    elif grid.kind == "full_range":
        wanted = 2 * max(abs(low), abs(high)) / levels
    elif grid.kind == "asymmetric":
        wanted = (max(high, 0.0) - min(low, 0.0)) / levels
    else:
        wanted = (high - low) / levels
    wanted = max(wanted, SMALLEST[grid.scale_format]) if wanted else 0.0
    room = STORED[grid.scale_format] * (wanted + (abs(low) / levels if grid.kind == "float_minimum" else 0.0))
    if abs(group.scale - wanted) <= room:
        return ""
    return f"weights from {low:.6g} to {high:.6g} ask for a scale of {wanted:.6g}, and it is {group.scale:.6g}"


def wrong_distance(group: Group, grid: Grid, rounding: float = ROUNDING) -> str:
    """A weight that is further than s / 2 from what runs although it lies between the levels' ends; "" if none is."""
    half = group.scale / 2
    ends = [value_of(code, group.scale, group.offset, grid) for code in (grid.lowest, grid.highest)]
    for before, after in zip(group.before, group.after, strict=True):
        slack = half * 1e-6 + rounding * (abs(before) + abs(after))
        if ends[0] - half <= before <= ends[1] + half and abs(after - before) > half + slack:
            return f"{before:.6g} became {after:.6g}, further than s/2 = {half:.6g}"
    return ""


def wrong_nf4(group: Group, rounding: float = ROUNDING, *, double_quant: bool = False) -> str:
    """What of an NF4 block is not as it should be; "" if all is.

    The scale is the largest |w| of the block (with `double_quant` only near it), each code the nearest level's.
    """
    largest = max(abs(w) for w in group.before)
    if not double_quant and group.scale != largest and largest >= 2.0**-126:
        return f"the largest |w| of the block is {largest:.6g}, and its scale {group.scale:.6g}"
    for before, code, after in zip(group.before, group.codes, group.after, strict=True):
        expected = NF4[code] * group.scale
        if abs(after - expected) > max(rounding, 1e-6) * abs(expected):  # the published table is itself rounded
            return f"level {code} of a block of {group.scale:.6g} is {expected:.6g}, and {after:.6g} runs"
        if largest:
            scaled = before / largest
            best = min(abs(scaled - level) for level in NF4)
            if abs(scaled - NF4[code]) > best + 1e-6:
                return f"{scaled:.6g} of the largest went to the level {NF4[code]:.6g}, which is not the nearest"
    return ""


def in_format(value: float, name: str) -> float:
    """The number of a format nearest to `value`, ties to even, beyond its range its largest number.

    Args:
        name: "float16", "bfloat16", "float8_e4m3fn" (no infinity, its largest is 448) or "float8_e5m2".
    """
    exponent_bits, fraction_bits, largest = {
        "float16": (5, 10, 65504.0),
        "bfloat16": (8, 7, 3.3895313892515355e38),
        "float8_e4m3fn": (4, 3, 448.0),
        "float8_e5m2": (5, 2, 57344.0),
    }[name]
    if value == 0 or not math.isfinite(value):
        return value
    least = 2 - 2 ** (exponent_bits - 1)
    exponent = max(math.frexp(value)[1] - 1, least)
    step = math.ldexp(1.0, exponent - fraction_bits)
    return math.copysign(min(round(abs(value) / step) * step, largest), value)  # round(): ties to even


def as_float32(value: float) -> float:
    """`value` as fp32 has it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
