"""What a grid is: how many levels, where they lie, and which weights share a scale. No torch here.

A grid is decided by four things: the number of bits, the kind of its levels, the group of weights that share a scale,
and the format in which scales (and minima) are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.errors import BadInput, shown

SMALLEST_NORMAL = 2.0**-126
"""Of fp32. A scale below it would lose its bits: what it scales is taken as constant instead."""
Kind = Literal["absmax", "full_range", "asymmetric", "float_minimum"]
"""Where the levels of b bits lie, with s the scale of a group:

- absmax: s q with q from -Q to Q, Q = 2^(b-1) - 1 and s = max|w| / Q. Zero is a level, and so are both ends.
- full_range: s q with q from -2^(b-1) to 2^(b-1) - 1 and s = 2 max|w| / (2^b - 1): one level more, and the largest
  weights are clipped. GPTQ's own symmetric grid.
- asymmetric: s (q - z) with q from 0 to 2^b - 1, z an integer in the same range, s = (max - min) / (2^b - 1) over a
  range that always has zero inside, so that zero is a level.
- float_minimum: s q + m with m = min as a floating number: GGUF's Q4_1.
"""

KINDS: tuple[Kind, ...] = ("absmax", "full_range", "asymmetric", "float_minimum")
ScaleFormat = Literal["float16", "bfloat16", "float32"]
Share = int | Literal["row", "tensor"]
"""Weights that share a scale: so many neighbours along the input, a whole row (one output), or all."""

LEAST_BITS, MOST_BITS = 2, 8
LEAST_GROUP, MOST_GROUP = 16, 512
SCALE_BITS: dict[ScaleFormat, int] = {"float16": 16, "bfloat16": 16, "float32": 32}


@dataclass(frozen=True)
class Grid:
    """A grid for the weights of one matrix.

    Attributes:
        bits: of a code, 2 to 8.
        kind: see `Kind`.
        share: the weights that share a scale. A group size is 16 to 512.
        ragged: whether the last group of a row may be smaller than the others. Without it a group size that does not
            divide the row is refused, and the sizes that do are named.
        scale_format: how scales and minima are stored; they are rounded to it before codes are made.

    Raises:
        BadInput: outside these limits.
    """

    bits: int = 4
    kind: Kind = "absmax"
    share: Share = 64
    ragged: bool = False
    scale_format: ScaleFormat = "float16"

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not LEAST_BITS <= self.bits <= MOST_BITS:
            raise BadInput(
                f"A grid has {LEAST_BITS} to {MOST_BITS} bits, not {shown(self.bits)}.",
                remedy=f"Choose bits between {LEAST_BITS} and {MOST_BITS}.",
            )
        if self.kind not in KINDS:
            raise BadInput(f"There is no grid {shown(self.kind)}.", remedy=f"Choose one of {', '.join(KINDS)}.")
        if self.share not in ("row", "tensor"):
            size = self.share
            if isinstance(size, bool) or not isinstance(size, int) or not LEAST_GROUP <= size <= MOST_GROUP:
                raise BadInput(
                    f"Groups have {LEAST_GROUP} to {MOST_GROUP} weights, not {shown(size)}.",
                    remedy=f"Choose a group size between {LEAST_GROUP} and {MOST_GROUP}, 'row' or 'tensor'.",
                )
        if self.scale_format not in SCALE_BITS:
            raise BadInput(
                f"There is no scale format {shown(self.scale_format)}.",
                remedy=f"Choose one of {', '.join(SCALE_BITS)}.",
            )

    @property
    def lowest(self) -> int:
        """The smallest code."""
        if self.kind == "absmax":
            return 1 - (1 << (self.bits - 1))
        return -(1 << (self.bits - 1)) if self.kind == "full_range" else 0

    @property
    def highest(self) -> int:
        """The largest code."""
        return (1 << (self.bits - 1)) - 1 if self.kind in ("absmax", "full_range") else (1 << self.bits) - 1

    @property
    def zero_bits(self) -> int:
        """Bits of a group's zero point or minimum; 0 for the symmetric kinds."""
        if self.kind == "asymmetric":
            return self.bits
        return SCALE_BITS[self.scale_format] if self.kind == "float_minimum" else 0

    def group_size(self, columns: int) -> int:
        """Weights of a group in rows of `columns` weights; a whole row for "row" and "tensor".

        Raises:
            BadInput: the size does not divide the row, and `ragged` is off; or it is larger than the row.
        """
        if self.share in ("row", "tensor"):
            return columns
        size = int(self.share)
        if size > columns or (columns % size and not self.ragged):
            fitting = ", ".join(map(str, fitting_sizes(columns)))
            rest = "" if size > columns else f" ({columns} = {columns // size} x {size} + {columns % size})"
            raise BadInput(
                f"Groups of {size} do not divide rows of {columns} weights{rest}.",
                remedy=f"Choose {fitting + ' or ' if fitting else ''}'row', or allow a smaller last group (ragged).",
            )
        return size

    def groups(self, columns: int) -> int:
        """Scales of a row of `columns` weights; the last group may be smaller than the others."""
        size = self.group_size(columns)
        return -(-columns // size)


def fitting_sizes(columns: int) -> tuple[int, ...]:
    """The group sizes usual in the field that divide rows of `columns` weights.

    >>> fitting_sizes(576)
    (16, 32, 64, 96, 192, 288)
    """
    usual = (16, 32, 64, 96, 128, 192, 256, 288, 384, 512)
    return tuple(size for size in usual if columns % size == 0 and size <= columns)
