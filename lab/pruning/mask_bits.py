"""A mask as bits and a part of a matrix as bytes: what a picture of it needs, no more.

Bits: column j of a row is bit j % 8 (of value 2^(j % 8), the lowest first) of its byte j // 8; 1 is kept. Each row
starts a new byte; the bits that are left over in a row's last byte are 0.

Bytes: 128 is exactly zero, 129 to 255 are positive and 127 down to 1 negative; byte 128 + l and 128 - l stand for the
same magnitude, that of level l, 1 to 127. Linear: largest * l / 127. Logarithmic: largest * 10^(-decades * (127 - l) /
126): level 127 is the largest, level 1 is 10^-decades of it and all that is smaller. The largest is the whole
matrix's, so that a moved viewport keeps its colours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lab.errors import BadInput, shown

LONGEST = 256
"""Rows or columns of a viewport, at most: one pixel each at the least zoom that shows values."""
ZERO, LEVELS = 128, 127
DECADES = 4.0

Spacing = Literal["log", "linear"]


def pack_mask(mask: Tensor) -> Tensor:
    """(out, in) bool to (out, ceil(in / 8)) uint8, on the CPU; see the module for the order of bits.

    Raises:
        BadInput: not a matrix of truth values.
    """
    if mask.dim() != 2 or mask.dtype != torch.bool:
        raise BadInput(
            f"A mask is a matrix of truth values, not {tuple(mask.shape)} {mask.dtype}.",
            remedy="Give (out, in), True where a weight is kept.",
        )
    return torch.from_numpy(np.packbits(mask.cpu().numpy(), axis=1, bitorder="little"))


def unpack_mask(bits: Tensor, columns: int) -> Tensor:
    """The mask again, (out, columns) bool.

    Raises:
        BadInput: bytes that do not hold rows of so many columns.
    """
    _check_bits(bits)
    if columns < 0 or bits.shape[1] != -(-columns // 8):
        raise BadInput(
            f"Rows of {bits.shape[1]} bytes do not hold {columns} columns.",
            remedy=f"Give {max(0, 8 * bits.shape[1] - 7)} to {8 * bits.shape[1]} columns.",
        )
    return torch.from_numpy(np.unpackbits(bits.cpu().numpy(), axis=1, count=columns, bitorder="little").view(np.bool_))


def kept_per_row(bits: Tensor) -> Tensor:
    """(out,) int64: the weights that are kept in each row of a packed mask."""
    _check_bits(bits)
    return torch.from_numpy(np.bitwise_count(bits.cpu().numpy()).sum(axis=1, dtype=np.int64))


def differences(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Of two packed masks, what only the first keeps and what only the second keeps, packed alike.

    Raises:
        BadInput: masks of different shapes.
    """
    _check_bits(first)
    _check_bits(second)
    if first.shape != second.shape:
        raise BadInput(
            f"Masks of {tuple(first.shape)} and {tuple(second.shape)} bytes cannot be compared.",
            remedy="Compare masks of one matrix.",
        )
    first, second = first.cpu(), second.cpu()
    return first & ~second, second & ~first


@dataclass(frozen=True)
class Viewport:
    """A part of a matrix.

    Attributes:
        row, column: of its first entry.
        rows, columns: 1 to `LONGEST` each.

    Raises:
        BadInput: outside these limits.
    """

    row: int
    column: int
    rows: int
    columns: int

    def __post_init__(self) -> None:
        if min(self.row, self.column) < 0 or not all(1 <= size <= LONGEST for size in (self.rows, self.columns)):
            raise BadInput(
                f"A viewport of {shown(self.rows)} x {shown(self.columns)} from row {shown(self.row)}, column "
                f"{shown(self.column)} cannot be shown.",
                remedy=f"Start at 0 or later, and show 1 to {LONGEST} rows and columns.",
            )

    def of(self, matrix: Tensor) -> Tensor:
        """The part of `matrix`, a view; less where it reaches over the edge.

        Raises:
            BadInput: it starts beyond the edge.
        """
        if self.row >= matrix.shape[0] or self.column >= matrix.shape[1]:
            raise BadInput(
                f"Row {self.row}, column {self.column} lies outside a matrix of {matrix.shape[0]} x {matrix.shape[1]}.",
                remedy="Start within the matrix.",
            )
        return matrix[self.row : self.row + self.rows, self.column : self.column + self.columns]


@dataclass(frozen=True)
class ValueBytes:
    """Values at a screen's precision.

    Attributes:
        levels: (rows, columns) uint8, on the CPU; see the module.
        spacing: of the levels.
        largest: magnitude of level 127.
        decades: between level 1 and level 127, where they are logarithmic.
    """

    levels: Tensor
    spacing: Spacing
    largest: float
    decades: float

    def decode(self) -> Tensor:
        """(rows, columns) fp32: the values that the levels stand for."""
        signed = self.levels.to(torch.float32) - ZERO
        size = signed.abs()
        if self.spacing == "linear":
            return self.largest * signed / LEVELS
        magnitude = self.largest * torch.pow(10.0, -self.decades * (LEVELS - size) / (LEVELS - 1))
        return torch.where(size == 0, torch.zeros_like(magnitude), magnitude * signed.sign())


def value_bytes(
    values: Tensor,
    viewport: Viewport,
    *,
    spacing: Spacing = "log",
    decades: float = DECADES,
    largest: float | None = None,
) -> ValueBytes:
    """A part of a matrix, one byte a value; a value that is not zero never becomes zero.

    Args:
        values: (out, in), finite.
        decades: above 0; of "linear" it is not used.
        largest: magnitude of level 127, above 0; what is larger is shown as this. The matrix's own by default.

    Raises:
        BadInput: a viewport outside the matrix, an unknown spacing, or limits that are no positive numbers.
    """
    if spacing not in ("log", "linear"):
        raise BadInput(f"There is no spacing {shown(spacing)}.", remedy="Choose log or linear.")
    values = values.detach()
    part = viewport.of(values).float().cpu()
    most = float(values.abs().max()) if largest is None else largest
    if not (math.isfinite(most) and math.isfinite(decades) and decades > 0) or (largest is not None and largest <= 0):
        raise BadInput(
            f"Levels up to {shown(most)} over {shown(decades)} decades cannot be laid out.",
            remedy="Give finite numbers above 0.",
        )
    if most == 0:
        return ValueBytes(torch.full(part.shape, ZERO, dtype=torch.uint8), spacing, 0.0, decades)
    share = (part.double().abs() / most).clamp(max=1.0)
    level = LEVELS * share if spacing == "linear" else LEVELS + (LEVELS - 1) / decades * torch.log10(share)
    level = level.round().clamp(1, LEVELS)  # log10(0) is -inf: clamped, then masked
    signed = torch.where(part == 0, torch.zeros_like(level), level * part.sign())
    return ValueBytes((signed + ZERO).to(torch.uint8), spacing, most, decades)


def _check_bits(bits: Tensor) -> None:
    if bits.dim() != 2 or bits.dtype != torch.uint8:
        raise BadInput(
            f"A packed mask has rows of bytes; this is {tuple(bits.shape)} {bits.dtype}.",
            remedy="Pack the mask first.",
        )
