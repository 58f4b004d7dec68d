"""Packed weights: right codes, right products, bytes counted, the shared model untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lab.decoding.choose_pass import choose_pass
from lab.decoding.matvec import Called, matvecs
from lab.errors import BadInput
from lab.models.shell import make_shell
from lab.quantization.packed import token
from lab.quantization.packed.halves import HalvesKernel, has_kernel
from lab.quantization.packed.int4 import Int4Weight, quantize_int4
from lab.quantization.packed.int8 import Int8Weight, quantize_int8
from lab.quantization.packed.joined import JoinedKernel
from lab.quantization.packed.modules import PackedLinear
from lab.quantization.packed.pack import pack_shell, packing

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def weight(rows: int = 64, columns: int = 128, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def both(w: Tensor, group_size: int = 32) -> tuple[Int8Weight, Int4Weight]:
    return quantize_int8(w), quantize_int4(w, group_size)


def dense(made: Int8Weight | Int4Weight) -> Tensor:
    return made.dense(0, made.shape[0])


@given(
    seed=st.integers(0, 10_000), scale=st.sampled_from([1e-6, 0.02, 1.0, 1e4]), offset=st.sampled_from([0.0, -3, 50])
)
@settings(max_examples=30, deadline=None)
def test_every_weight_is_within_half_a_step(seed: int, scale: float, offset: float) -> None:
    w = (weight(32, 64, seed) + offset) * scale
    eight, four = both(w)
    step = eight.scales.float()[:, None]
    assert ((w - dense(eight)).abs() <= step / 2 * (1 + 1e-5)).all()
    assert int(eight.codes.abs().max()) <= 127
    # bf16 rounds the zero point of a group; its rounding is at most 1/256 of it, and the range is cut by as much
    step, zero = (t.float().repeat_interleave(32, dim=1) for t in (four.scales, four.zeros))
    assert ((w - dense(four)).abs() <= step / 2 * (1 + 1e-4) + (zero.abs() + 8 * step) / 256).all()
    assert int(four.codes.max()) <= 15


def test_the_bound_tells_a_wrong_scale() -> None:
    w = weight()
    made = quantize_int8(w)
    halved = Int8Weight((made.codes / 2).to(torch.int8), made.scales)
    assert not ((w - dense(halved)).abs() <= made.scales.float()[:, None] / 2).all()


def test_codes_are_their_own_codes() -> None:
    """Quantizing what the codes say gives the same matrix again, for scales without rounding."""
    codes = torch.randint(-127, 128, (16, 64), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    codes[:, 0] = 127
    made = quantize_int8(codes.float() * 0.25)
    assert torch.equal(made.codes, codes)
    assert made.scales.unique().tolist() == [0.25]
    nibbles = torch.randint(0, 16, (16, 64), generator=torch.Generator().manual_seed(2))
    nibbles[:, 0::32], nibbles[:, 1::32] = 0, 15
    four = quantize_int4((nibbles.float() - 8) * 0.5 + 2, 32)
    assert torch.equal(four.codes.long(), nibbles)
    assert four.zeros.unique().tolist() == [2.0]


def test_an_all_negative_group_keeps_its_range() -> None:
    w = -weight(16, 64).abs() - 1
    for made in both(w):
        assert float((w - dense(made)).abs().max()) < 0.25


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_the_kernels_multiply_what_the_codes_say(rows: int, group_size: int) -> None:
    w, x = weight(), weight(rows, 128, seed=1).to(torch.bfloat16)
    for made in both(w, group_size):
        expected = x.float() @ dense(made).T
        limit = 0.01 * float(expected.abs().max())
        assert float((made.multiply(x).float() - expected).abs().max()) < limit
        # the mutation: the codes of other rows
        assert float((made.multiply(x).float() - x.float() @ dense(made).flip(0).T).abs().max()) > limit


def test_the_kernels_own_order_holds_the_canonical_codes() -> None:
    made = quantize_int4(weight(), 32)
    again = Int4Weight.from_codes(made.codes, made.scales, made.zeros, 32)
    assert made.packed is not None
    assert again.packed is not None
    assert torch.equal(again.packed, made.packed)
    assert torch.equal(again.nibbles, made.nibbles)
    # one-hot inputs, scale 1 and zero point 8 read the codes back through the kernel
    plain = Int4Weight.from_codes(made.codes, torch.ones_like(made.scales), torch.full_like(made.zeros, 8.0), 32)
    assert torch.equal(plain.multiply(torch.eye(128, dtype=torch.bfloat16)).T, made.codes.to(torch.bfloat16))


@pytest.mark.parametrize("value", [0.0, 1e-30, -1e-30, 1e-38, 1e-42])
def test_rows_without_a_range_stay_finite(value: float) -> None:
    w = weight(16, 64)
    w[3] = value
    x = torch.ones(1, 64, dtype=torch.bfloat16)
    for made in both(w):
        assert torch.isfinite(dense(made)).all()
        assert float((dense(made)[3] - value).abs().max()) <= 0.005 * abs(value) + 1e-35
        assert torch.isfinite(made.multiply(x)).all()
        assert float(dense(made)[2].abs().max()) > 1  # the rows beside it are not harmed


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("bits", [8, 4])
def test_weights_that_are_not_finite_are_refused(bad: float, bits: int) -> None:
    w = weight()
    w[3, 5] = bad
    with pytest.raises(BadInput, match=r"q_proj has 1 weights that are not finite.*row 3, column 5"):
        quantize_int8(w, "q_proj") if bits == 8 else quantize_int4(w, 32, "q_proj")


def test_large_finite_weights_are_not_taken_for_infinite() -> None:
    made = quantize_int8(torch.full((2, 64), 3e38))
    assert float((dense(made) / 3e38 - 1).abs().max()) < 0.01


@pytest.mark.parametrize(
    ("shape", "group_size", "message", "remedy"),
    [
        ((32, 576), 128, r"Groups of 128 do not divide rows of 576 weights \(576 = 4 x 128 \+ 64\)", "32, 64"),
        ((32, 576), 48, "no group size 48", "32, 64, 128, 256"),
        ((32, 40), 32, "Groups of 32 do not divide rows of 40", "Leave this module dense"),
        ((24, 64), 32, "24 rows: 24 is no multiple of 16", "8 bits"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(shape: tuple[int, int], group_size: int, message: str, remedy: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        quantize_int4(weight(*shape), group_size)
    assert remedy in refused.value.remedy


def test_a_width_that_the_int8_kernel_would_overrun_is_refused() -> None:
    with pytest.raises(BadInput, match="36 is no multiple of 32"):
        quantize_int8(weight(16, 36))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_module_gives_what_it_took(bits: int, dtype: torch.dtype) -> None:
    w, bias = weight(), torch.arange(64.0).to(dtype)
    made = both(w)[0 if bits == 8 else 1]
    module = PackedLinear(made, bias)
    for rows in (1, 3, 8, 40, 100):  # by the kernel, and widened
        x = weight(rows, 128, seed=rows).to(dtype)
        y = module(x[None])
        assert y.dtype == dtype
        assert y.shape == (1, rows, 64)
        expected = x.bfloat16().float() @ dense(made).T + bias.float()
        assert float((y[0].float() - expected).abs().max()) < 0.01 * float(expected.abs().max())


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_one_token_goes_through_without_a_call(add: bool, bias: bool) -> None:
    module = PackedLinear(quantize_int8(weight()), torch.ones(64) if bias else None)
    x, y = weight(1, 128)[0], torch.full((64,), 5.0)
    (product,) = matvecs([module], x, y, add=add)
    assert not isinstance(product, Called)
    product()
    expected = module(x[None])[0] + (5 if add else 0)
    assert float((y - expected).abs().max()) < 0.01 * float(expected.abs().max())
    module.register_forward_hook(lambda *_: torch.zeros(1, 1, 64))
    assert isinstance(matvecs([module], x, y)[0], Called)  # a hook is followed


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral", "gemma2", "gpt2"])
def test_the_shared_model_is_not_touched(tiny: Tiny, kind: str, bits: Any) -> None:
    model = tiny(kind).model
    before = {name: t.clone() for name, t in model.state_dict().items()}
    pointers = {name: p.data_ptr() for name, p in model.named_parameters(remove_duplicate=False)}
    modules = [type(m) for m in model.modules()]
    made = pack_shell(model, bits, 32)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert [type(m) for m in model.modules()] == modules
    assert model.get_output_embeddings().weight.data_ptr() == pointers["lm_head.weight"]
    embedding = model.get_input_embeddings().weight
    assert made.shell.get_input_embeddings().weight.data_ptr() == embedding.data_ptr()  # type: ignore[operator]
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        one, other = model(ids).logits, made.shell(ids).logits
    assert not torch.equal(one, other)
    assert float((one - other).norm() / one.norm()) < (0.1 if bits == 8 else 0.8)


def test_bytes_count_scales_and_zero_points(tiny: Tiny) -> None:
    model = tiny("llama").model
    linear = [m for m in model.modules() if type(m) is torch.nn.Linear]
    numbers, rows = sum(m.weight.numel() for m in linear), sum(m.out_features for m in linear)
    eight, four = pack_shell(model, 8), pack_shell(model, 4, 32)
    assert eight.bytes == numbers + 2 * rows
    assert eight.resident_bytes == eight.bytes  # small matrices are joined, and held once
    assert four.bytes == numbers // 2 + numbers // 32 * 4
    assert four.resident_bytes == 2 * four.bytes  # canonical, and in the kernel's order
    assert eight.dense_bytes == four.dense_bytes == 4 * numbers
    assert len(eight.packed) == len(linear)
    assert eight.skipped == ()


def test_a_large_matrix_has_a_kernel_with_a_copy_of_its_own(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token, "LARGE", 0)
    made = pack_shell(tiny("llama").model, 8)
    linear = [m for m in made.shell.modules() if isinstance(m, PackedLinear)]
    numbers, rows = sum(m.weight_codes.codes.numel() for m in linear), sum(m.out_features for m in linear)  # type: ignore[attr-defined]
    # in an order of its own, with a step of 8 bytes a row
    assert made.resident_bytes == made.bytes + (numbers + 8 * rows if has_kernel() else 0)


@pytest.mark.parametrize("add", [True, False])
def test_joined_matrices_give_the_products_of_each_and_share_their_codes(add: bool) -> None:
    one, other = quantize_int8(weight()), quantize_int8(weight(32, 128, seed=4))
    kernel = JoinedKernel([one, other])
    x, y = weight(1, 128, seed=5)[0], torch.full((96,), 5.0)
    kernel.product(x, y, add=add)()
    apart = torch.cat([w.multiply(x[None].bfloat16())[0] for w in (one, other)]).float() + (5 if add else 0)
    assert torch.equal(y, apart)
    assert [torch.equal(a.codes, b.codes) for a, b in zip(kernel.weights, (one, other), strict=True)] == [True, True]
    first, second = kernel.weights
    assert second.codes.data_ptr() == first.codes.data_ptr() + first.codes.numel()
    z = torch.full((96,), 5.0)
    JoinedKernel([other, one]).product(x, z, add=add)()
    assert not torch.equal(z, apart)  # the order matters


def test_a_tied_head_is_packed_alone_or_stays(tiny: Tiny) -> None:
    model = tiny("llama").model
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    with_head, without = pack_shell(model, 8), pack_shell(model, 8, head=False)
    assert isinstance(with_head.shell.lm_head, PackedLinear)
    assert without.skipped == (("lm_head", "the head was asked to stay dense"),)
    assert without.shell.lm_head.weight is without.shell.model.embed_tokens.weight  # type: ignore[union-attr]


def test_what_does_not_fit_stays_dense_and_is_named(tiny: Tiny) -> None:
    made = pack_shell(tiny("llama", intermediate_size=48).model, 4, 32)
    assert {why for _, why in made.skipped} == {"no group size divides its rows of 48 weights"}
    assert all(name.endswith("down_proj") for name, _ in made.skipped)
    conv = pack_shell(tiny("gpt2").model, 8)
    assert conv.packed == ("lm_head",)
    assert {why for _, why in conv.skipped} == {"a Conv1D keeps its weight the other way round"}


def test_a_group_that_does_not_divide_is_refused_before_anything_is_packed(tiny: Tiny) -> None:
    with pytest.raises(BadInput, match="Groups of 128 do not divide rows of 32"):
        pack_shell(tiny("llama").model, 4, 128)


@pytest.mark.parametrize("bits", [2, 3, 16])
def test_other_bits_are_refused(tiny: Tiny, bits: Any) -> None:
    with pytest.raises(BadInput, match=f"for {bits} bits"):
        pack_shell(tiny("llama").model, bits)


def test_packing_pauses_after_each_module(tiny: Tiny) -> None:
    model = tiny("llama").model
    assert sum(1 for _ in packing(model, 8)) >= sum(type(m) is torch.nn.Linear for m in model.modules())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bits", [8, 4])
def test_the_fast_path_follows_packed_modules(tiny: Tiny, bits: Any, dtype: str) -> None:
    loaded = tiny("llama", dtype=dtype)
    shell = pack_shell(loaded.model, bits, 32).shell
    ids = [5, 6, 7, 8, 9]
    with torch.inference_mode():
        runner = choose_pass(shell, 16, layers=(), fast=True, mistake="nothing")
        runner(ids[:2], 0, last=False, attention=False)
        one = runner([ids[2]], 2, last=True, attention=False)
        assert one is not None
        rows = [one.clone(), *runner.rows(ids[3:], 3).logits]
        plain = shell(torch.tensor([ids])).logits[0, 2:].float()
        dense_logits = loaded.model(torch.tensor([ids])).logits[0, 2:].float()
    for got, expected, other in zip(rows, plain, dense_logits, strict=True):
        assert float((got - expected).norm()) < 0.05 * float(expected.norm())
        if (bits, dtype) != (8, "bfloat16"):  # there the rounding of bf16 is as large as that of the codes
            assert float((got - other).norm()) > float((got - expected).norm())  # not the dense weights


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_halves_of_a_token_are_as_exact_as_its_codes(add: bool, dtype: torch.dtype) -> None:
    assert has_kernel() == bool({"x86", "fbgemm"} & set(torch.backends.quantized.supported_engines))
    if not has_kernel():
        return
    one, other = quantize_int8(weight()), quantize_int8(weight(32, 128, seed=4))
    x, y = weight(1, 128, seed=5)[0].to(dtype), torch.full((96,), 5.0, dtype=dtype)
    product = HalvesKernel([one, other]).product(x, y, add=add)
    product()
    wide = torch.cat((dense(one), dense(other)))
    expected = wide @ x.float() + (5 if add else 0)
    limit = (2e-3 if dtype == torch.float32 else 2e-2) * float(expected.abs().max())
    assert float((y.float() - expected).abs().max()) < limit
    # the mutation: 7 bits of input, as the kernel alone takes them, are too few
    step = float(x.float().abs().max()) / 63
    coarse = wide @ ((x.float() / step).round() * step) + (5 if add else 0)
    if dtype == torch.float32:
        assert float((coarse - expected).abs().max()) > limit
    x.zero_()
    product()
    assert torch.isfinite(y).all()
    x[3] = torch.nan
    product()
    assert torch.isnan(y).all()


def test_kernels_are_shared_by_shells_and_fuse_what_reads_the_same(tiny: Tiny) -> None:
    shell: Any = make_shell(pack_shell(tiny("llama").model, 8).shell)
    attention = shell.model.layers[0].self_attn
    modules = [attention.q_proj, attention.v_proj, attention.k_proj]
    assert len(matvecs(modules, torch.zeros(32), torch.zeros(64))) == 1
    assert len(matvecs(modules[::-1], torch.zeros(32), torch.zeros(64))) == 3  # another order than the kernel's
