"""Packing a large matrix in slices: rows have nothing to do with each other, so blocks of them are packed and joined.

The head of a large vocabulary has tens of millions of weights, and packing it at once takes half a second or more.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from lab.quantization.packed.int4 import Int4Weight, quantize_int4
from lab.quantization.packed.int8 import Int8Weight, quantize_int8

SLICE_WEIGHTS = 3_000_000
"""Weights packed at once, at most: about 80 ms on one slow core."""

_BLOCK = 64
"""The kernels of int4 order whole blocks of so many rows, or of a part of it."""


def packing_int8(weight: Tensor, name: str = "the weight") -> Generator[None, None, Int8Weight]:
    """As `quantize_int8`, pausing between blocks of rows; bit for bit the same."""
    parts: list[Int8Weight] = []
    for block in torch.split(weight, _rows(weight)):
        if parts:
            yield
        parts.append(quantize_int8(block, name))
    if len(parts) == 1:
        return parts[0]
    yield
    return Int8Weight(torch.cat([part.codes for part in parts]), torch.cat([part.scales for part in parts]))


def packing_int4(weight: Tensor, group_size: int, name: str = "the weight") -> Generator[None, None, Int4Weight]:
    """As `quantize_int4`, pausing between blocks of rows; bit for bit the same."""
    if weight.shape[0] % _BLOCK:  # the last block would be ordered otherwise
        return quantize_int4(weight, group_size, name)
    parts: list[Int4Weight] = []
    for block in torch.split(weight, _rows(weight)):
        if parts:
            yield
        parts.append(quantize_int4(block, group_size, name))
    if len(parts) == 1:
        return parts[0]
    yield
    packed = [part.packed for part in parts if part.packed is not None]
    return Int4Weight(
        torch.cat([part.nibbles for part in parts]),
        torch.cat([part.scales for part in parts]),
        torch.cat([part.zeros for part in parts]),
        group_size,
        torch.cat(packed) if packed else None,
        torch.cat([part.scales_zeros for part in parts], dim=1),
    )


def _rows(weight: Tensor) -> int:
    return max(1, SLICE_WEIGHTS // max(1, weight.shape[1]) // _BLOCK) * _BLOCK
