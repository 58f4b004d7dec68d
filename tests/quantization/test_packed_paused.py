"""Large packed matrices in parts: products and kernels that pause are, bit for bit, those made at once."""

from __future__ import annotations

import pytest
import torch
from drained import drained

from lab.quantization.packed import halves, modules
from lab.quantization.packed.halves import HalvesKernel, has_kernel, making_halves
from lab.quantization.packed.int4 import quantize_int4
from lab.quantization.packed.int8 import quantize_int8
from lab.quantization.packed.modules import PackedLinear


def matrix(rows: int = 320, columns: int = 64) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_of_many_rows_pauses_and_is_the_same(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    made = PackedLinear(quantize_int8(matrix()) if bits == 8 else quantize_int4(matrix(), 32), torch.ones(320))
    x = torch.randn(made.weight_codes.few + 1, 64, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(modules, "PIECE_BYTES", 4 * 64 * 16)  # 20 pieces of 16 outputs
    pauses, product = drained(made.sliced(x))
    assert pauses == 2
    assert torch.equal(product, made(x))
    assert drained(made.sliced(x[:3]))[0] == 0  # the packed kernel takes a few rows at once


@pytest.mark.parametrize("block", [64 * 64, 100 * 64, 10**9])
def test_a_kernel_made_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    if not has_kernel():
        assert not {"x86", "fbgemm"} & set(torch.backends.quantized.supported_engines)
        return
    weights = [quantize_int8(matrix()), quantize_int8(matrix(96))]
    whole = HalvesKernel(weights)
    monkeypatch.setattr(halves, "BLOCK_WEIGHTS", block)
    pauses, parts = drained(making_halves(weights))
    assert (pauses > 0) == (block < 416 * 64)
    assert (parts.rows, parts.resident_bytes) == (whole.rows, whole.resident_bytes)
    for add in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(64, generator=torch.Generator().manual_seed(2)).to(dtype)
            found, expected = torch.ones(416, dtype=dtype), torch.ones(416, dtype=dtype)
            parts.product(x, found, add=add)()
            whole.product(x, expected, add=add)()
            assert torch.equal(found, expected)
            x += 1  # the mutation: another token, another product
            whole.product(x, expected, add=False)()
            assert not torch.equal(found, expected)
