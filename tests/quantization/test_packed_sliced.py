"""A matrix packed in slices is, bit for bit, the matrix packed at once; and no slice holds many weights."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from drained import drained

from lab.errors import BadInput
from lab.quantization.packed import sliced
from lab.quantization.packed.int4 import quantize_int4
from lab.quantization.packed.int8 import quantize_int8


def same(one: Any, other: Any) -> bool:
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)]
    return all(
        torch.equal(a, b) and a.stride() == b.stride() if isinstance(a, torch.Tensor) else a == b for a, b in pairs
    )


@pytest.mark.parametrize("rows", [64, 128, 192, 320, 336, 48])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slices_make_the_same(monkeypatch: pytest.MonkeyPatch, rows: int, dtype: torch.dtype) -> None:
    monkeypatch.setattr(sliced, "SLICE_WEIGHTS", 128 * 256)
    weight = torch.randn(rows, 256, generator=torch.Generator().manual_seed(rows)).to(dtype)
    weight[3] = 0
    blocks = -(-rows // 128)
    pauses, eight = drained(sliced.packing_int8(weight))
    assert same(eight, quantize_int8(weight))
    assert pauses == (blocks if blocks > 1 else 0)
    pauses, four = drained(sliced.packing_int4(weight, 64))
    assert same(four, quantize_int4(weight, 64))
    assert pauses == (blocks if blocks > 1 and rows % 64 == 0 else 0)
    x = torch.randn(2, 256, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert torch.equal(four.multiply(x), quantize_int4(weight, 64).multiply(x))
    assert torch.equal(eight.multiply(x), quantize_int8(weight).multiply(x))


def test_blocks_of_another_size_would_be_ordered_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: where blocks are no multiple of the kernel's, the sameness above is seen to fail."""
    monkeypatch.setattr(sliced, "SLICE_WEIGHTS", 48 * 256)
    monkeypatch.setattr(sliced, "_BLOCK", 48)
    weight = torch.randn(96, 256, generator=torch.Generator().manual_seed(0))
    assert not same(drained(sliced.packing_int4(weight, 64))[1], quantize_int4(weight, 64))


def test_no_slice_holds_more_than_a_few_million_weights() -> None:
    head = torch.empty(49_152, 576, device="meta")
    assert sliced._rows(head) * 576 <= sliced.SLICE_WEIGHTS
    assert sliced._rows(torch.empty(64, 8_000_000, device="meta")) == 64


def test_what_is_not_finite_is_refused_in_any_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced, "SLICE_WEIGHTS", 64 * 64)
    weight = torch.zeros(256, 64)
    weight[200, 3] = torch.inf
    for run in (sliced.packing_int8(weight, "the head"), sliced.packing_int4(weight, 32, "the head")):
        with pytest.raises(BadInput, match="the head"):
            drained(run)
