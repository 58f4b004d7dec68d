"""LLM.int8(): exact integer products, outlier features found per call, both parts of the product."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lab.errors import BadInput, NotFound
from lab.quantization.int8_product import int8_product
from lab.quantization.llm_int8 import Int8Matrix, LlmInt8, outlier_features, plant, study_outliers, vector_wise
from lab.quantization.llm_int8_module import LlmInt8Linear, OutlierTrace, count_outliers, hang_llm_int8
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def codes(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-128, 128, shape, generator=torch.Generator().manual_seed(seed)).to(torch.int8)


def end(steps: Generator[Any, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


@given(rows=st.integers(1, 5), width=st.integers(1, 2200), out=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_integer_products_are_exact(rows: int, width: int, out: int, seed: int) -> None:
    left, right = codes(rows, width, seed=seed), codes(out, width, seed=seed + 1)
    product = int8_product(left, right)
    assert product.dtype == torch.int32
    assert torch.equal(product.long(), left.long() @ right.long().t())


def test_integer_products_are_those_of_torch() -> None:
    left, right = codes(32, 1536), codes(64, 1536, seed=1)
    assert torch.equal(int8_product(left, right), torch._int_mm(left, right.t().contiguous()))


@pytest.mark.parametrize("value", [127, -128])
def test_4096_of_the_largest_codes_do_not_overflow(value: int) -> None:
    left = torch.full((2, 4096), value, dtype=torch.int8)
    assert int8_product(left, left).unique().tolist() == [4096 * value * value]
    # the mistake: a kernel that adds in fp16 (or in fp32 at once, for sums that are no even numbers)
    assert not math.isfinite(float(left.half()[:1] @ left.half()[:1].t()))


def test_integer_products_refuse_what_they_cannot_do() -> None:
    with pytest.raises(BadInput, match="float32"):
        int8_product(randn(2, 3), codes(2, 3))
    with pytest.raises(BadInput, match="131,072 columns"):
        int8_product(codes(1, 131_072), codes(1, 131_072))


def test_vectors_have_scales_of_their_own() -> None:
    x = randn(6, 50) * torch.tensor([1e-3, 1, 1e3, 1, 0, 1])[:, None]
    found, scales = vector_wise(x)
    assert ((found * scales[:, None] - x).abs() <= scales[:, None] / 2 * (1 + 1e-5)).all()
    assert (found.abs().amax(dim=1) == torch.tensor([127, 127, 127, 127, 0, 127])).all()
    assert float(scales[4]) == 0.0


def test_a_position_of_zeros_gives_zeros_and_no_nan() -> None:
    x, w = randn(4, 64), randn(8, 64, seed=1)
    x[1], x[2] = 0.0, 1e-42
    w[3] = 0.0
    for threshold in (0.0, 1.5, 6.0, math.inf):
        product = Int8Matrix.of(w).multiply(x, threshold)
        assert product.output.isfinite().all()
        assert product.output[1].tolist() == [0.0] * 8
        assert product.output[:, 3].abs().max() <= 1e-30
    # the mistake: dividing by the row's largest magnitude without a look
    assert (x[1] / x[1].abs().amax()).isnan().all()


def test_outlier_features_are_columns_with_any_value_at_or_above_the_threshold() -> None:
    x = torch.zeros(3, 6)
    x[0, 1], x[1, 3], x[2, 4], x[2, 5] = 6.0, -6.5, 5.999, 7.0
    assert outlier_features(x, 6.0).tolist() == [1, 3, 5]
    assert outlier_features(x, 0.0).tolist() == []
    assert outlier_features(x, math.inf).tolist() == []
    for bad in (-1.0, math.nan):
        with pytest.raises(BadInput, match="threshold"):
            outlier_features(x, bad)


def test_a_tiny_threshold_is_exact_and_an_infinite_one_is_all_integers() -> None:
    x, w = randn(5, 96), randn(16, 96, seed=1)
    matrix, exact = Int8Matrix.of(w), x @ w.t()
    everything = matrix.multiply(x, 1e-30)
    assert torch.allclose(everything.output, exact, rtol=1e-5, atol=1e-5)
    assert not everything.integer.any()
    for threshold in (math.inf, 0.0):
        pure = matrix.multiply(x, threshold)
        assert not pure.floating.any()
        x_codes, x_scales = vector_wise(x)
        by_hand = (x_codes.long() @ matrix.codes.long().t()).double() * x_scales.double()[:, None] * matrix.scales
        assert torch.allclose(pure.output.double(), by_hand, rtol=1e-6)
        assert 1e-4 < float((pure.output - exact).norm() / exact.norm()) < 0.02


def test_both_parts_add_up_and_scales_leave_outliers_out() -> None:
    x, chosen = plant(randn(10, 256), 3)
    w = randn(32, 256, seed=1)
    product = Int8Matrix.of(w).multiply(x, 20.0)
    assert product.outliers.tolist() == chosen.tolist() == [0, 85, 170]
    assert torch.allclose(product.floating, x[:, chosen] @ w[:, chosen].t(), rtol=1e-5, atol=1e-4)
    left = x.clone()
    left[:, chosen] = 0
    assert torch.equal(product.x_scales, left.abs().amax(dim=1) / 127)
    assert torch.equal(product.output, product.integer + product.floating)


@pytest.mark.parametrize("planted", [1, 5, 20])
def test_planted_outliers_are_worth_ten_times(planted: int) -> None:
    """The brief demonstration: some channels 100 times larger drown all others where all goes to integers."""
    x, chosen = plant(randn(64, 576), planted)
    w = randn(192, 576, seed=1)
    # what the drowned channels give is what is looked at: the outliers themselves come through well
    shown = study_outliers(x, w, 6.0)
    assert shown.count == planted
    assert {channel for channel, _ in shown.outliers} == set(chosen.tolist())
    matrix = Int8Matrix.of(w)
    exact = x.double() @ w.double().t()
    mixed = (matrix.multiply(x, 6.0).output - exact).norm()
    pure = (matrix.multiply(x, 0.0).output - exact).norm()
    assert pure / mixed >= 10
    assert shown.pure_error / shown.mixed_error == pytest.approx(float(pure / mixed), rel=0.01)
    # the mistake: outliers taken apart, but scales still taken from them
    rows = x.abs().amax(dim=1) / 127
    rest = x.clone()
    rest[:, chosen] = 0
    careless = torch.round(rest / rows[:, None]) * rows[:, None]
    wrong = (careless @ (matrix.codes * matrix.scales[:, None]).t() + x[:, chosen] @ w[:, chosen].t() - exact).norm()
    assert pure / wrong < 10


def test_outlier_columns_from_codes_where_only_codes_are_held() -> None:
    x, _ = plant(randn(16, 128), 2)
    w = randn(32, 128, seed=1)
    held, kept = Int8Matrix.of(w, keep_dense=False), Int8Matrix.of(w)
    exact = x @ w.t()
    assert held.dense is None
    assert torch.equal(held.multiply(x).integer, kept.multiply(x).integer)
    assert (held.multiply(x).output - exact).norm() > 5 * (kept.multiply(x).output - exact).norm()


def test_the_weight_as_a_method() -> None:
    w = randn(32, 96)
    made = finished(LlmInt8().quantize(w))
    assert made.storage.bits_per_weight == 8 + 32 / 96
    found, scales = vector_wise(w)
    assert torch.allclose(made.dequantize(), found * scales[:, None], rtol=1e-6)
    with pytest.raises(BadInput, match="not finite"):
        finished(LlmInt8().quantize(torch.full((2, 32), math.nan)))


def test_nan_and_infinite_inputs_are_seen_in_the_output() -> None:
    x, w = randn(3, 32), randn(4, 32, seed=1)
    x[1, 5] = math.nan
    for threshold in (0.0, 6.0):
        out = Int8Matrix.of(w).multiply(x, threshold).output
        assert out[1].isnan().all()
        assert out[0].isfinite().all()
    x[1, 5] = math.inf
    assert not Int8Matrix.of(w).multiply(x, 6.0).output[1].isfinite().any()


def test_a_module_works_like_the_linear_it_stands_for() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 24)
    trace = OutlierTrace(most=2)
    made = LlmInt8Linear(Int8Matrix.of(linear.weight), linear.bias, name="here", trace=trace)
    x = randn(2, 3, 64)
    x[1, 2, 9] = -40.0
    with torch.inference_mode():
        for dtype, limit in ((torch.float32, 0.02), (torch.bfloat16, 0.03)):
            out, exact = made(x.to(dtype)), linear(x)
            assert (out.shape, out.dtype) == ((2, 3, 24), dtype)
            assert float((out.float() - exact).norm() / exact.norm()) < limit
        made(x[:1])
    assert [(c.module, c.call, c.rows, c.features, c.count) for c in trace.calls] == [
        ("here", i, 6, (9,), 1) for i in (0, 1)
    ]
    assert trace.calls[0].largest == 40.0
    assert trace.left_out == 1


PROMPTS = ([5, 9, 12, 3], [40, 2, 17, 33, 8, 21])


def shell_with_trace(loaded: LoadedModel, threshold: float, **options: Any) -> tuple[nn.Module, OutlierTrace]:
    trace = OutlierTrace()
    return end(hang_llm_int8(loaded.model, threshold=threshold, trace=trace, **options)), trace


@torch.inference_mode()
def logits(model: nn.Module, ids: list[int]) -> Tensor:
    found: Tensor = model(input_ids=torch.tensor([ids])).logits
    return found


def test_two_prompts_have_different_outliers_and_the_model_none_of_its_own(tiny: Tiny) -> None:
    """Outliers belong to a call: nothing is stored in the weights, and each prompt shows its own."""
    loaded = tiny("llama")
    before = {name: p.clone() for name, p in loaded.model.named_parameters()}
    shell, trace = shell_with_trace(loaded, 2.0)
    first, second = (logits(shell, list(ids)) for ids in PROMPTS)
    sets = [[call.features for call in trace.calls if call.call == number] for number in (0, 1)]
    assert sets[0] != sets[1]
    assert any(sets[0])
    assert {call.rows for call in trace.calls if call.call == 1} == {len(PROMPTS[1])}
    assert torch.equal(logits(shell, list(PROMPTS[0])), first)  # no memory of the other prompt
    assert [call.features for call in trace.calls if call.call == 2] == sets[0]
    assert all(torch.equal(p, before[name]) for name, p in loaded.model.named_parameters())
    assert second.isfinite().all()
    # the mistake: the first call's set kept for later ones would have given other features
    assert sets[1] != [call.features for call in trace.calls if call.call == 2]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_model_with_a_tiny_threshold_is_the_dense_one(tiny: Tiny, kind: str) -> None:
    loaded = tiny(kind)
    dense = logits(loaded.model, list(PROMPTS[0]))
    exact, _ = shell_with_trace(loaded, 1e-30)
    integers, _ = shell_with_trace(loaded, 0.0)
    assert torch.allclose(logits(exact, list(PROMPTS[0])), dense, atol=1e-4)
    assert 1e-6 < float((logits(integers, list(PROMPTS[0])) - dense).abs().max()) < 0.5
    with pytest.raises(BadInput, match="threshold"):
        shell_with_trace(loaded, -1.0)


def test_outliers_of_a_model_are_counted(tiny: Tiny) -> None:
    loaded = tiny("llama")
    rows = end(count_outliers(loaded.model, PROMPTS, 2.0))
    assert len(rows) == 7 * len(loaded.facts.layers)
    shell, trace = shell_with_trace(loaded, 2.0)
    del shell
    # the first layer's query inputs by hand: what the norm gives for each token
    layer = loaded.model.model.layers[0]  # type: ignore[union-attr, index]
    with torch.inference_mode():
        inputs = [
            layer.input_layernorm(loaded.model.model.embed_tokens(torch.tensor([list(ids)])))[0]  # type: ignore[union-attr, operator]
            for ids in PROMPTS
        ]
    x = torch.cat(inputs)
    row = next(r for r in rows if r.module.endswith("layers.0.self_attn.q_proj"))
    assert row.positions == 10
    assert row.features == int((x.abs() >= 2.0).any(dim=0).sum())
    assert row.values == int((x.abs() >= 2.0).sum())
    assert torch.allclose(row.maxima, x.abs().amax(dim=0))
    assert not trace.calls
    with pytest.raises(NotFound):
        end(count_outliers(loaded.model, PROMPTS, 2.0, ["nowhere"]))
    with pytest.raises(BadInput, match="outside the decoder layers"):
        end(count_outliers(loaded.model, PROMPTS, 2.0, ["lm_head"]))


@pytest.mark.model
def test_the_packaged_model_has_outlier_features_of_its_own(packaged_model: LoadedModel) -> None:
    """Few, as a small model has, and not in every input; but it does have them."""
    ids = packaged_model.tokenizer("The capital of France is Paris, and the sky is blue because of scattering.")[
        "input_ids"
    ]
    rows = end(count_outliers(packaged_model.model, [ids], 6.0))
    assert len(rows) == 210
    shares = [row.features / row.maxima.numel() for row in rows]
    assert sum(row.features for row in rows) > 0
    assert sum(shares) / len(shares) < 0.05
    assert min(row.features for row in rows) == 0
