"""Keys and values as codes: the arithmetic of a quantized cache, as plain functions.

Each group has a minimum and a scale in floating point: x' = s q + m, q = round((x - m) / s) from 0 to 2^bits - 1
(KIVI, Liu et al., 2024). Codes are packed, so that the bytes counted are bytes held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.quantization.affine import Affine, affine_of_range, encode_groups
from lab.quantization.bit_packing import pack_codes, unpack_codes
from lab.quantization.grid import Grid
from lab.quantization.kv_scheme import Along, KvBytes, KvScheme

_FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class KvCodes:
    """Keys or values of some positions, (..., position, head_dim), as codes.

    Attributes:
        along: who shares a scale.
        bits: of a code.
        size: numbers of a group.
        codes: uint8, packed along the group: (..., position / size, head_dim, bytes) for "channel",
            (..., position, head_dim / size, bytes) for "token".
        scale, minimum: the same without the last axis, as stored.
    """

    along: Along
    bits: int
    size: int
    codes: Tensor
    scale: Tensor
    minimum: Tensor

    @property
    def positions(self) -> int:
        """Positions that have codes."""
        return self.codes.shape[-3] * (self.size if self.along == "channel" else 1)

    @property
    def code_bytes(self) -> int:
        """Of the codes."""
        return self.codes.numel()

    @property
    def scale_bytes(self) -> int:
        """Of scales and minima."""
        return 2 * self.scale.numel() * self.scale.element_size()

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """(..., position, head_dim)."""
        codes = unpack_codes(self.codes, self.bits, self.size, torch.float32)
        groups = torch.addcmul(self.minimum.float()[..., None], codes, self.scale.float()[..., None])
        if self.along == "channel":
            return groups.transpose(-1, -2).flatten(-3, -2).to(dtype)
        return groups.flatten(-2).to(dtype)

    def extended(self, later: KvCodes) -> KvCodes:
        """With the codes of later positions behind."""
        return self._mapped(lambda mine, theirs, axis: torch.cat((mine, theirs), dim=axis), later)

    def picked(self, rows: Tensor) -> KvCodes:
        """The batch rows `rows`, where the first axis is the batch."""
        return self._mapped(lambda mine, _, __: mine.index_select(0, rows.to(mine.device)), self)

    def _mapped(self, change: Callable[[Tensor, Tensor, int], Tensor], other: KvCodes) -> KvCodes:
        return KvCodes(
            self.along,
            self.bits,
            self.size,
            change(self.codes, other.codes, -3),
            change(self.scale, other.scale, -2),
            change(self.minimum, other.minimum, -2),
        )


def quantize_kv(states: Tensor, along: Along, scheme: KvScheme) -> KvCodes:
    """Codes of keys or values.

    Args:
        states: (..., position, head_dim), for example (kv_head, position, head_dim); any floating dtype.
        along: "channel" (usual for keys; positions must be a multiple of `scheme.group`) or "token".

    Raises:
        BadInput: positions or head_dim that groups do not divide, or a number beyond the format of scales.
    """
    positions, head_dim = states.shape[-2:]
    size = scheme.group_of(along, head_dim)
    if along == "channel":
        if positions % size:
            raise BadInput(
                f"Groups of {size} positions do not divide {positions}.", remedy="Leave the last ones dense."
            )
        groups = states.float().reshape(*states.shape[:-2], positions // size, size, head_dim).transpose(-1, -2)
    else:
        groups = states.float().reshape(*states.shape[:-1], head_dim // size, size)
    grid = Grid(scheme.bits, "float_minimum", "row", scale_format=scheme.scale_format)
    stored = _FORMATS[scheme.scale_format]
    if not groups.numel():
        scale = groups.new_zeros(groups.shape[:-1])
        affine = Affine(scale, scale)
    else:
        affine = affine_of_range(*torch.aminmax(groups, dim=-1), grid)
    codes = encode_groups(groups, affine, grid)
    assert affine.offset is not None  # noqa: S101 - the kind has minima
    return KvCodes(
        along, scheme.bits, size, pack_codes(codes, scheme.bits), affine.scale.to(stored), affine.offset.to(stored)
    )


@dataclass(frozen=True)
class SplitKv:
    """One tensor of a quantized cache: codes of the older positions, the newest as they are.

    Attributes:
        codes: of the older positions; may have none.
        dense: (..., position, head_dim), the newest.
        widened: what the codes say, (..., position, head_dim), kept beside them: saves time and no memory. Not counted.
    """

    codes: KvCodes
    dense: Tensor
    widened: Tensor | None = None

    def dequantize(self) -> Tensor:
        """(..., position, head_dim), in the dtype of the dense part."""
        older = self.codes.dequantize(self.dense.dtype) if self.widened is None else self.widened
        return torch.cat((older, self.dense), dim=-2)

    def appended(self, newer: Tensor) -> SplitKv:
        """With newer positions behind, dense."""
        return replace(self, dense=torch.cat((self.dense, newer), dim=-2))

    def settled(self, count: int, scheme: KvScheme) -> SplitKv:
        """With codes for the oldest `count` dense positions."""
        later = quantize_kv(self.dense[..., :count, :], self.codes.along, scheme)
        wide = self.widened
        return SplitKv(
            self.codes.extended(later),
            # A copy, so that the positions that are now codes are not kept alive by a view.
            self.dense[..., count:, :].clone(),
            None if wide is None else torch.cat((wide, later.dequantize(wide.dtype)), dim=-2),
        )

    def picked(self, rows: Tensor) -> SplitKv:
        """The batch rows `rows`, where the first axis is the batch."""
        parts = (None if t is None else t.index_select(0, rows.to(t.device)) for t in (self.dense, self.widened))
        dense, widened = parts
        assert dense is not None  # noqa: S101 - there always is a dense part
        return SplitKv(self.codes.picked(rows), dense, widened)

    @property
    def bytes(self) -> KvBytes:
        """Counted from the tensors."""
        dense = self.dense.numel() * self.dense.element_size()
        one = self.dense.element_size() * self.dense.shape[-1] * self.dense.shape[:-2].numel()
        return KvBytes(self.codes.code_bytes, self.codes.scale_bytes, dense, dense + self.codes.positions * one)


def split_kv(states: Tensor, along: Along, scheme: KvScheme) -> SplitKv:
    """What a quantized cache holds of keys or values, (..., position, head_dim): codes but for the newest positions."""
    coded = scheme.quantized_positions(states.shape[-2])
    return SplitKv(quantize_kv(states[..., :coded, :], along, scheme), states[..., coded:, :].clone())
