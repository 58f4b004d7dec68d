"""Quantized activations: per token, per tensor and static; observers; ranges; errors beside weight-only."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lab.calibration.listen import layer_modules
from lab.errors import BadInput, NotFound
from lab.quantization.activation_study import PERCENTS, RangeGatherer, gather_ranges, study_activations
from lab.quantization.activations import (
    ActivationScheme,
    RoundedInputs,
    calibrate_ranges,
    hang_rounded_inputs,
    rounded,
)
from lab.quantization.grid import Grid
from lab.quantization.llm_int8 import relative_error
from lab.quantization.nearest import Nearest
from lab.quantization.observers import RULES
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PROMPTS = ([5, 9, 12, 3, 7, 21, 14, 2], [40, 2, 17, 33, 8, 21])


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def end(steps: Generator[Any, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0))


def test_one_large_token_spoils_a_scale_for_all_but_not_its_own() -> None:
    x = randn(32, 128)
    x[5] *= 100
    per_token, per_tensor = (rounded(x, ActivationScheme(8, mode)) for mode in ("token", "tensor"))  # type: ignore[arg-type]
    others = torch.arange(32) != 5
    errors = [relative_error(found[others], x[others]) for found in (per_token, per_tensor)]
    assert errors[0] < 0.01
    assert errors[1] > 20 * errors[0]
    w = randn(64, 128, seed=1).t()
    cosines = [cosine(found[others] @ w, x[others] @ w) for found in (per_token, per_tensor)]
    assert cosines[0] > 0.999 > 0.97 > cosines[1]
    # the mistake: a scale for each channel's maximum over tokens is per tensor for this purpose too
    assert relative_error(rounded(x.t(), ActivationScheme(8, "token")).t()[others], x[others]) > 20 * errors[0]


@given(
    bits=st.integers(2, 8),
    symmetric=st.booleans(),
    mode=st.sampled_from(["token", "tensor"]),
    seed=st.integers(0, 99),
    shift=st.sampled_from([0.0, 3.0, -20.0]),
)
@settings(max_examples=40, deadline=None)
def test_inputs_are_within_half_a_step(bits: int, symmetric: bool, mode: Any, seed: int, shift: float) -> None:
    x = randn(2, 5, 24, seed=seed) + shift
    found = rounded(x, ActivationScheme(bits, mode, symmetric))
    over = (-1,) if mode == "token" else (0, 1, 2)
    if symmetric:
        step = x.abs().amax(dim=over, keepdim=True) / (2 ** (bits - 1) - 1)
    else:
        step = (x.amax(dim=over, keepdim=True).clamp(min=0) - x.amin(dim=over, keepdim=True).clamp(max=0)) / (
            2**bits - 1
        )
    # an integer zero point moves the levels by up to half a step, at the very ends only
    assert ((found - x).abs() <= step * (0.5 if symmetric else 1.0) * (1 + 1e-4) + 1e-6).all()
    assert found.shape == x.shape
    levels = found.flatten(0, 1)[0].unique() if mode == "token" else found.unique()
    assert levels.numel() <= 2**bits


@pytest.mark.parametrize("symmetric", [True, False])
def test_eight_bits_are_those_of_torch(symmetric: bool) -> None:
    """torch's own fake quantization with the same scale and zero point."""
    x = randn(7, 40) + (0 if symmetric else 1.5)
    if symmetric:
        scale, zero, low, high = float(x.abs().max() / 127), 0, -127, 127
    else:
        scale = float((x.max() - x.min()) / 255)
        zero, low, high = round(float(-x.min()) / scale), 0, 255
    expected = torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high)
    assert torch.allclose(rounded(x, ActivationScheme(8, "tensor", symmetric)), expected, atol=1e-6)


def test_a_static_range_clips_what_lies_beyond() -> None:
    x = torch.tensor([[-9.0, -1.0, 0.0, 0.5, 30.0]])
    found = rounded(x, ActivationScheme(8, "static"), (-1.0, 2.0))
    assert found[0, 0] == pytest.approx(-2.0, abs=1e-6)
    assert found[0, 4] == pytest.approx(2.0, abs=1e-6)
    assert (found[0, 1:4] - x[0, 1:4]).abs().max() <= 2 / 127 / 2 + 1e-6
    skewed = rounded(x, ActivationScheme(8, "static", symmetric=False), (-1.0, 2.0))
    assert skewed[0, 0] == pytest.approx(-1.0, abs=0.01)
    assert float(skewed[0, 2]) == 0.0  # zero is a level
    with pytest.raises(BadInput, match="calibrated range"):
        rounded(x, ActivationScheme(8, "static"))
    for bad in ((2.0, -1.0), (math.nan, 1.0), (0.0, math.inf)):
        with pytest.raises(BadInput, match="no range"):
            rounded(x, ActivationScheme(8, "static"), bad)


def test_zeros_nothing_and_dtypes() -> None:
    x = randn(3, 16)
    x[1] = 0.0
    for mode in ("token", "tensor"):
        found = rounded(x, ActivationScheme(4, mode))  # type: ignore[arg-type]
        assert found.isfinite().all()
        assert not found[1].any()
    assert rounded(x[:0], ActivationScheme()).shape == (0, 16)
    assert rounded(x.bfloat16(), ActivationScheme()).dtype == torch.bfloat16
    for options in ({"bits": 1}, {"bits": 9}, {"mode": "row"}):
        with pytest.raises(BadInput):
            ActivationScheme(**options)  # type: ignore[arg-type]


# Models


@torch.inference_mode()
def logits(model: nn.Module, ids: list[int]) -> Tensor:
    found: Tensor = model(input_ids=torch.tensor([ids])).logits
    return found


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_shell_rounds_its_inputs_and_the_model_does_not(tiny: Tiny, kind: str) -> None:
    loaded, ids = tiny(kind), list(PROMPTS[0])
    dense = logits(loaded.model, ids)
    drift = {}
    for bits in (8, 4):
        shell = hang_rounded_inputs(loaded.model, ActivationScheme(bits))
        wrapped = [module for module in shell.modules() if isinstance(module, RoundedInputs)]
        assert len(wrapped) == len(layer_modules(loaded.model))
        drift[bits] = float((logits(shell, ids) - dense).abs().max())
    assert 0 < drift[8] < drift[4]
    assert torch.equal(logits(loaded.model, ids), dense)


def test_static_ranges_are_those_of_the_inputs(tiny: Tiny) -> None:
    loaded = tiny("llama")
    seen: dict[str, list[Tensor]] = {}
    handles = [
        loaded.model.get_submodule(name).register_forward_pre_hook(
            lambda _, args, name=name: seen.setdefault(name, []).append(args[0])  # type: ignore[misc]
        )
        for name in layer_modules(loaded.model)
    ]
    for ids in PROMPTS:
        logits(loaded.model, list(ids))
    for handle in handles:
        handle.remove()
    spans = end(calibrate_ranges(loaded.model, PROMPTS, RULES[0]))
    assert set(spans) == set(seen)
    for name, (low, high) in spans.items():
        values = torch.cat([x.flatten() for x in seen[name]])
        assert (low, high) == pytest.approx((float(values.min()), float(values.max())), rel=1e-4, abs=1e-5)
    shell = hang_rounded_inputs(loaded.model, ActivationScheme(8, "static"), spans)
    dense = logits(loaded.model, list(PROMPTS[0]))
    assert 0 < relative_error(logits(shell, list(PROMPTS[0])), dense) < 0.1
    name = next(iter(spans))
    with pytest.raises(BadInput, match="No range was calibrated"):
        hang_rounded_inputs(loaded.model, ActivationScheme(8, "static"), spans, ["lm_head", name])
    with pytest.raises(NotFound, match="nowhere"):
        hang_rounded_inputs(loaded.model, ActivationScheme(), names=["nowhere"])
    with pytest.raises(BadInput, match="0 modules of"):
        hang_rounded_inputs(loaded.model, ActivationScheme(), names=[])


def test_ranges_of_a_model_are_bounded_and_right(tiny: Tiny) -> None:
    loaded = tiny("llama")
    rows = end(gather_ranges(loaded.model, PROMPTS))
    assert [row.module for row in rows] == list(layer_modules(loaded.model))
    spans = end(calibrate_ranges(loaded.model, PROMPTS, RULES[0]))
    for row in rows:
        assert row.positions == 14
        assert (row.low, row.high) == pytest.approx(spans[row.module])
        assert row.low <= row.percentiles[0] <= row.percentiles[2] <= row.percentiles[-1] <= row.high
        assert len(row.percentiles) == len(PERCENTS)
        assert len(row.largest) <= 16
        assert row.largest[0][1] == pytest.approx(max(-row.low, row.high))


def test_a_gatherer_by_hand() -> None:
    x = torch.zeros(100, 4)
    x[:, 1], x[7, 2] = 1.0, -30.0
    gatherer = RangeGatherer()
    gatherer.see(x[:50].view(5, 10, 4))
    gatherer.see(x[50:])
    row = gatherer.result("here")
    assert (row.positions, row.channels, row.low, row.high) == (100, 4, -30.0, 1.0)
    assert row.rms == pytest.approx(math.sqrt((100 + 900) / 400))
    assert row.far == pytest.approx(1 / 400)
    assert row.largest[:2] == ((2, 30.0), (1, 1.0))


# The study


def test_errors_beside_weight_only() -> None:
    x, w = randn(64, 96), randn(32, 96, seed=1)
    x[3] *= 50
    coded = finished(Nearest(Grid(4, share=32)).quantize(w)).dequantize()
    study = study_activations(randn(256, 96, seed=2), x, w, coded)
    by = {choice.name: choice for choice in study.choices}
    assert list(by) == ["token", "tensor", "static_max", "static_percentile", "static_moving_average"]
    exact = x @ w.t()
    assert study.weights_only_error == pytest.approx(relative_error(x @ coded.t(), exact))
    token = rounded(x, ActivationScheme(8, "token"))
    assert by["token"].output_error == pytest.approx(relative_error(token @ w.t(), exact))
    assert by["token"].both_error == pytest.approx(relative_error(token @ coded.t(), exact))
    # with 8 bits a token the inputs cost little beside the weights' 4
    assert by["token"].output_error < 0.2 * study.weights_only_error < by["token"].both_error
    assert math.isnan(by["token"].scale)
    # calibration never saw the large token: a static range clips it, and says so
    for name in ("static_max", "static_percentile", "static_moving_average"):
        assert by[name].clipped > 0
        assert by[name].output_error > 10 * by["token"].output_error
        assert by[name].span is not None
        assert by[name].scale == pytest.approx(max(map(abs, by[name].span or ())) / 127)
    assert by["static_percentile"].clipped > by["static_max"].clipped
    assert by["static_moving_average"].scale < by["static_max"].scale
    assert study.token_max.shape == (64,)
    assert int(study.token_max.argmax()) == 3


def test_a_study_without_quantized_weights_and_with_few_bits() -> None:
    x, w = randn(16, 32), randn(8, 32, seed=1)
    eight, four = (study_activations(x, x, w, bits=bits, symmetric=False).choices[0] for bits in (8, 4))
    assert eight.output_error < four.output_error / 5
    assert math.isnan(eight.both_error)
    with pytest.raises(BadInput, match="no inputs"):
        study_activations(x[:0], x, w)
    with pytest.raises(BadInput, match="bits"):
        study_activations(x, x, w, bits=1)


@pytest.mark.model
def test_ranges_of_the_packaged_model(packaged_model: LoadedModel) -> None:
    """Its inputs are far from even: down projections see single channels many times larger than the others."""
    ids = packaged_model.tokenizer("The capital of France is Paris, and the sky is blue because of scattering.")[
        "input_ids"
    ]
    names = [f"model.layers.{layer}.{part}" for layer in (0, 14, 29) for part in ("self_attn.q_proj", "mlp.down_proj")]
    rows = {row.module: row for row in end(gather_ranges(packaged_model.model, [ids], names))}
    assert set(rows) == set(names)
    assert max(row.largest[0][1] / row.typical_channel for row in rows.values()) > 20
    assert all(row.far < 0.05 for row in rows.values())
