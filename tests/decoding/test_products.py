"""Several rows through a linear module: every way gives the module's own result."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lab.decoding import half_pack
from lab.decoding.half_pack import half_product, pack_ahead, packed_weight, packing_pays
from lab.decoding.products import RowsProduct, Scratches, linear_rows, padded_rows


def linear(rows: int, columns: int, *, bias: bool, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(columns, rows, bias=bias).to(dtype).requires_grad_(False)


def exact(module: nn.Linear, x: Tensor) -> Tensor:
    """In float64."""
    y = x.double() @ module.weight.double().T
    return y if module.bias is None else y + module.bias.double()


@given(
    count=st.integers(1, 20),
    rows=st.integers(1, 80),
    columns=st.sampled_from([1, 8, 33, 64, 1100]),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
@settings(max_examples=80, deadline=None)
def test_every_number_of_rows_and_every_shape(
    count: int, rows: int, columns: int, bias: bool, dtype: torch.dtype
) -> None:
    module = linear(rows, columns, bias=bias, dtype=dtype)
    x = torch.randn(1, count, columns).to(dtype)
    expected = exact(module, x)
    loose = 1e-4 if dtype == torch.float32 else 0.02 * (1 + float(expected.abs().max()))
    got = linear_rows(module, x)
    assert got.dtype == dtype
    assert got.shape == (1, count, rows)
    assert float((got.double() - expected).abs().max()) <= loose
    wide = x[0].float().clone()
    fixed = RowsProduct([module], wide, dtype, Scratches())
    for _ in range(2):
        y = fixed()
        assert y.dtype == torch.float32
        assert float((y.double() - expected[0]).abs().max()) <= loose
        wide.neg_()  # the buffer is read anew at each call
        expected = exact(module, -x)
        x = -x


def test_another_weight_is_another_product() -> None:
    """The mutation."""
    module, other, x = linear(24, 64, bias=False), linear(24, 64, bias=False, seed=1), torch.randn(3, 64)
    assert float((linear_rows(other, x).double() - exact(module, x)).abs().max()) > 0.1


def test_three_rows_are_sent_as_four() -> None:
    assert [padded_rows(rows) for rows in (1, 2, 3, 4, 5, 8)] == [1, 2, 4, 4, 5, 8]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_not_plain_is_called(dtype: torch.dtype) -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    overlay = Doubled(8, 4, bias=False).to(dtype).requires_grad_(False)
    hooked = linear(4, 8, bias=False, dtype=dtype)
    hooked.register_forward_pre_hook(lambda _, args: (args[0] * 3,))
    x = torch.randn(2, 8)
    for module, factor in ((overlay, 2), (hooked, 3)):
        expected = factor * exact(module, x)
        assert torch.allclose(linear_rows(module, x.to(dtype)).double(), expected, atol=0.1)
        assert torch.allclose(RowsProduct([module], x, dtype, Scratches())().double(), expected, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mixed", [True, False])
def test_several_modules_lie_side_by_side(dtype: torch.dtype, mixed: bool) -> None:
    modules = [linear(rows, 16, bias=rows == 8, dtype=dtype, seed=rows) for rows in (4, 8, 12)]
    if mixed:
        modules[1].register_forward_hook(lambda _, __, y: y + 1)
    x = torch.randn(3, 16)
    expected = torch.cat([exact(m, x) + (1 if mixed and m is modules[1] else 0) for m in modules], dim=1)
    scratch = Scratches()
    got = RowsProduct(modules, x, dtype, scratch)()
    assert got.shape == (3, 24)
    assert torch.allclose(got.double(), expected, atol=1e-5 if dtype == torch.float32 else 0.05)
    other = RowsProduct(modules[:1], x, dtype, scratch)().clone()  # another size, another buffer
    assert torch.allclose(other.double(), expected[:, :4], atol=1e-5 if dtype == torch.float32 else 0.05)
    assert torch.allclose(got.double(), expected, atol=1e-5 if dtype == torch.float32 else 0.05)


needs_kernel = pytest.mark.skipif(not packing_pays(), reason="this CPU multiplies bf16 itself, or has no fp16 kernel")


@needs_kernel
@pytest.mark.parametrize("rows", [8, half_pack.BLOCK_ROWS - 1, half_pack.BLOCK_ROWS, half_pack.BLOCK_ROWS + 3])
def test_a_bf16_matrix_is_packed_without_loss(rows: int) -> None:
    weight = (torch.randn(rows, 16) * 0.05).bfloat16()
    weight[weight.abs() < 2.0**-17] = 0  # below, fp16 has fewer bits than bf16
    packed = packed_weight(weight)
    assert packed is not None
    assert len(packed) == -(-rows // half_pack.BLOCK_ROWS)
    # one-hot rows read the matrix back
    assert torch.equal(half_product(torch.eye(16), packed).T, weight.float())


@needs_kernel
def test_tiny_weights_lose_no_more_than_the_docstring_says() -> None:
    weight = torch.logspace(-20, -4, 64).view(4, 16).bfloat16()
    packed = packed_weight(weight)
    assert packed is not None
    off = (half_product(torch.eye(16), packed).T - weight.float()).abs()
    assert float(off.max()) <= 3e-8
    assert float(off[weight.float() >= 6e-5].max()) == 0


@needs_kernel
def test_a_weight_is_packed_once_and_forgotten_with_its_weight() -> None:
    weight = torch.randn(2 * half_pack.BLOCK_ROWS, 8).bfloat16()
    key, before = id(weight), len(half_pack._packed)
    assert sum(1 for _ in pack_ahead(weight)) == 2  # it pauses after each block
    assert sum(1 for _ in pack_ahead(weight)) == 0
    first = packed_weight(weight)
    assert packed_weight(weight) is first
    weight.mul_(2)
    assert packed_weight(weight) is not first
    del first, weight
    gc.collect()
    assert key not in half_pack._packed
    assert len(half_pack._packed) <= before


@needs_kernel
def test_fp32_weights_are_never_packed() -> None:
    assert packed_weight(torch.randn(8, 8)) is None


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_result(threads: int, dtype: torch.dtype) -> None:
    before = torch.get_num_threads()
    module, x = linear(96, 1536, bias=False, dtype=dtype), torch.randn(4, 1536).to(dtype)
    try:
        torch.set_num_threads(threads)
        got = linear_rows(module, x)
    finally:
        torch.set_num_threads(before)
    assert torch.allclose(got.double(), exact(module, x), atol=1e-3 if dtype == torch.float32 else 0.05)
