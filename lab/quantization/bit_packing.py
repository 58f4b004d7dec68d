"""Codes of 2, 4 or 8 bits in bytes: the first code lies in the highest bits, as in bitsandbytes."""

from __future__ import annotations

import torch
from torch import Tensor

from lab.errors import BadInput, shown

WIDTHS = (2, 4, 8)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """Pack whole numbers of `bits` bits along the last axis.

    Args:
        codes: (..., count), any dtype, 0 to 2^bits - 1; not checked.
        bits: 2, 4 or 8.

    Returns:
        (..., ceil(count * bits / 8)) uint8. A last byte that is not full ends in zeros.

    Raises:
        BadInput: another number of bits.
    """
    each = _each(bits)
    codes = codes.to(torch.uint8)
    if bits == 8:
        return codes
    short = -codes.shape[-1] % each
    if short:
        codes = torch.nn.functional.pad(codes, (0, short))
    parts = codes.reshape(*codes.shape[:-1], codes.shape[-1] // each, each)
    packed: Tensor = parts[..., 0] << (8 - bits)
    for place in range(1, each):
        packed = packed | (parts[..., place] << (8 - bits * (place + 1)))
    return packed


def unpack_codes(packed: Tensor, bits: int, count: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """The inverse of `pack_codes`.

    Args:
        packed: (..., bytes) uint8.
        bits: 2, 4 or 8.
        count: codes along the last axis.
        dtype: of the result.

    Returns:
        (..., count).

    Raises:
        BadInput: another number of bits, or fewer bytes than `count` codes take.
    """
    each = _each(bits)
    if packed.shape[-1] * each < count:
        raise BadInput(f"{count} codes of {bits} bits do not lie in {packed.shape[-1]} bytes.")
    if bits == 8:
        return packed[..., :count].to(dtype)
    mask = (1 << bits) - 1
    codes = packed.new_empty((*packed.shape, each), dtype=dtype)
    for place in range(each):
        # The first lies highest, so nothing is left above it; the last lies lowest, so nothing is shifted.
        part = packed >> (8 - bits * (place + 1)) if place < each - 1 else packed
        codes[..., place] = part & mask if place else part
    return codes.flatten(-2)[..., :count]


def _each(bits: int) -> int:
    if bits not in WIDTHS:
        raise BadInput(f"Codes of {shown(bits)} bits are not packed.", remedy="Choose 2, 4 or 8.")
    return 8 // bits
