"""Packed weights: right codes, right products, the shared model untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from lab.decoding.choose_pass import choose_pass
from lab.errors import BadInput, ModelError
from lab.models.shell import make_shell
from lab.quantization.packed.int4 import int4_product, pack_int4, quantize_int4
from lab.quantization.packed.int8 import int8_product, quantize_int8
from lab.quantization.packed.modules import PackedLinear
from lab.quantization.packed.pack import Packed, pack_model

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel


def weight(rows: int = 64, columns: int = 128, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def packed(model: torch.nn.Module, bits: Any, **options: Any) -> tuple[Packed, int]:
    steps = pack_model(model, bits, **options)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def test_int8_errors_are_below_half_a_step() -> None:
    w = weight()
    made = quantize_int8(w)
    steps = made.scales.float()[:, None]
    # bf16 rounds the scale by at most 1/256, so the largest weight may be clipped by half a step more
    assert ((w - made.dequantized()).abs() <= steps * 1.0).all()
    assert ((w - made.dequantized()).abs() <= steps / 2 * (1 + 1e-5)).float().mean() > 0.999
    assert int(made.codes.abs().max()) <= 127


def test_int4_errors_are_below_half_a_step() -> None:
    w = weight()
    made = quantize_int4(w, 32)
    steps = made.scales.float().repeat_interleave(32, dim=1)
    offsets = made.offsets.float().abs().repeat_interleave(32, dim=1)
    assert ((w - made.dequantized()).abs() <= steps / 2 * (1 + 1e-5) + offsets / 128).all()
    assert made.codes.max() <= 15


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
def test_the_kernels_multiply_what_the_codes_say(rows: int) -> None:
    w, x = weight(), weight(rows, 128, seed=1).to(torch.bfloat16)
    eight, four = quantize_int8(w), quantize_int4(w, 64)
    for product, made in (
        (int8_product(x, eight), eight.dequantized()),
        (int4_product(x, *pack_int4(four), 64), four.dequantized()),
    ):
        expected = x.float() @ made.T
        assert torch.allclose(product.float(), expected, rtol=2e-2, atol=2e-2 * float(expected.abs().max()))
    # the mutation: codes of another row are another product
    swapped = four.dequantized().flip(0)
    assert not torch.allclose(int4_product(x, *pack_int4(four), 64).float(), x.float() @ swapped.T, rtol=0.1, atol=0.5)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-42])
def test_rows_without_a_scale_stay_finite(value: float) -> None:
    w = torch.full((16, 64), value)
    for made in (quantize_int8(w).dequantized(), quantize_int4(w, 64).dequantized()):
        assert torch.isfinite(made).all()
        assert float(made.abs().max()) < 1e-20


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(bad: float) -> None:
    w = weight()
    w[3, 5] = bad
    for make in (lambda: quantize_int8(w), lambda: quantize_int4(w, 64)):
        with pytest.raises(ModelError, match="1 of 8,192 weights"):
            make()


def test_a_group_that_does_not_divide_is_refused_with_those_that_do() -> None:
    with pytest.raises(BadInput, match="Groups of 128 do not divide 576") as refused:
        quantize_int4(weight(32, 576), 128)
    assert "32, 64" in refused.value.remedy


def test_a_packed_module_gives_what_it_took() -> None:
    w, bias = weight(), torch.ones(64)
    module = PackedLinear(quantize_int8(w), bias)
    few, many = weight(3, 128, seed=2), weight(40, 128, seed=3)
    expected = module.weight.dequantized()
    for x in (few, many, few.to(torch.bfloat16), few[None]):
        y = module(x)
        assert y.dtype == x.dtype
        assert y.shape == (*x.shape[:-1], 64)
        assert torch.allclose(y.float(), x.float() @ expected.T + 1, rtol=3e-2, atol=0.5)
    assert module.nbytes == 64 * 128 + 64 * 2 + 64 * 4


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral"])
def test_the_shared_model_is_not_touched(tiny: Callable[..., LoadedModel], bits: Any, kind: str) -> None:
    loaded = tiny(kind, hidden_size=64, intermediate_size=128)
    before = {name: t.clone() for name, t in loaded.model.state_dict().items()}
    made, done = packed(loaded.model, bits, group_size=32)
    linear = [m for m in loaded.model.modules() if type(m) is torch.nn.Linear]
    assert done == len(linear)
    assert made.parameters == sum(m.weight.numel() for m in linear)
    assert made.bytes == sum(m.nbytes for m in made.shell.modules() if isinstance(m, PackedLinear))
    assert not made.skipped
    assert all(torch.equal(before[name], t) for name, t in loaded.model.state_dict().items())
    embedding = loaded.model.get_input_embeddings().weight
    assert made.shell.get_input_embeddings().weight.data_ptr() == embedding.data_ptr()  # type: ignore[operator]
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        one, other = loaded.model(ids).logits, made.shell(ids).logits
    assert not torch.equal(one, other)
    close = (one - other).norm() / one.norm()
    assert close < (0.05 if bits == 8 else 0.5)


def test_the_head_may_stay_as_it_is(tiny: Callable[..., LoadedModel]) -> None:
    made, _ = packed(tiny("llama", hidden_size=64, intermediate_size=128).model, 8, head=False)
    assert made.skipped == (("lm_head", "the output head was left out on purpose"),)


def test_a_width_that_no_group_divides_is_left_and_said(tiny: Callable[..., LoadedModel]) -> None:
    made, _ = packed(tiny("llama", intermediate_size=48).model, 4, group_size=32)
    assert {why for _, why in made.skipped} == {"no group size divides its 48 inputs"}
    assert made.parameters > 0


def test_other_bits_are_refused(tiny: Callable[..., LoadedModel]) -> None:
    with pytest.raises(BadInput, match="3 bits"):
        packed(tiny("llama").model, 3)


def test_the_fast_path_follows_packed_modules(tiny: Callable[..., LoadedModel]) -> None:
    loaded = tiny("llama", hidden_size=64, intermediate_size=128)
    made, _ = packed(loaded.model, 8)
    ids = [5, 6, 7, 8, 9]
    with torch.inference_mode():
        runner = choose_pass(made.shell, 16, layers=(), fast=True, mistake="nothing")
        fast = [runner([i], at, last=True, attention=False) for at, i in enumerate(ids)][-1]
        plain = made.shell(torch.tensor([ids])).logits[0, -1]
        dense = make_shell(loaded.model)(torch.tensor([ids])).logits[0, -1]
    assert fast is not None
    assert (fast - plain).norm() < 0.02 * plain.norm()
    assert (dense - plain).norm() > (fast - plain).norm()
