"""bf16 weights on a CPU without bf16 arithmetic: kept once more as packed fp16, for products of a few rows.

Such a CPU multiplies bf16 matrices row by row, so four tokens cost four times one. FBGEMM's fp16 kernel (through
torch's `quantized::linear_dynamic_fp16`: fp16 weights, fp32 activations and sums) reads the weights once for up to six
rows. Measured on an AMD EPYC (AVX2), one thread, 3072 x 576, in units of one bf16 matrix times one vector, for 1 to 6,
8 and 16 rows: .81 .81 .84 .83 .90 .88 1.29 1.80; row by row it is 1 to 16. The seven bits of a bf16 mantissa fit into
fp16's ten, so only weights below 6e-5 are rounded, by 3e-8 at most; a matrix with one above 65,504 is not packed.

The packed copy takes as much memory as the weights. It is made once for each weight and lives as long as that does.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Generator
from functools import cache
from typing import Any

import torch
from torch import Tensor

LARGEST = 65504.0

Packed = tuple[Any, ...]
"""The kernel's own form of a weight, in blocks of rows."""

_packed: dict[int, tuple[weakref.ref[Tensor], int, Packed | None]] = {}
"""By the weight's identity: the weight, its version when it was packed, and the packed form."""


BLOCK_ROWS = 8192
"""Rows packed at a time, so that no slice of a run is long."""


@cache
def packing_pays() -> bool:
    """Whether this CPU lacks bf16 products of its own and has the fp16 kernel."""
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return False
    try:
        return bool(half_product(torch.ones(1, 8), (_pack(torch.ones(8, 8)),)).all())
    except (RuntimeError, AttributeError):  # not built in, or no AVX2
        return False


def packed_weight(weight: Tensor) -> Packed | None:
    """The packed form of an (out, in) bf16 weight, made at the first call; None where packing does not pay or fit."""
    for _ in pack_ahead(weight):
        pass
    known = _packed.get(id(weight))
    return known[2] if known is not None else None


def pack_ahead(weight: Tensor) -> Generator[None, None, None]:
    """Pack a weight if it is not yet, pausing after each block of rows."""
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu" or not packing_pays():
        return
    key = id(weight)
    known = _packed.get(key)
    if known is not None and known[0]() is weight and known[1] == weight._version:
        return
    blocks: list[Any] | None = [] if float(weight.detach().abs().amax()) <= LARGEST else None
    if blocks is not None:
        for block in torch.split(weight.detach(), BLOCK_ROWS):
            blocks.append(_pack(block))
            yield
    forget = weakref.ref(weight, lambda _: _packed.pop(key, None))
    _packed[key] = (forget, weight._version, None if blocks is None else tuple(blocks))


def half_product(rows: Tensor, packed: Packed) -> Tensor:
    """(row, out) fp32: (row, in) fp32 rows times the packed weight, transposed."""
    parts = [torch.ops.quantized.linear_dynamic_fp16(rows, block) for block in packed]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _pack(weight: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ops.quantized.linear_prepack_fp16(weight.float(), None)
