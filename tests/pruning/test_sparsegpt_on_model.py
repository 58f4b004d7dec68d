"""The bars on the packaged model: SparseGPT against Wanda against magnitude, layers 0, 14 and 29; and all of it."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import pytest
import torch
from pruning_layers import output_square
from torch import Tensor

from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.evaluation.perplexity import measuring
from lab.evaluation.texts import find_texts
from lab.evaluation.tokens import encode
from lab.models.linear import linear_names
from lab.pruning.magnitude import Magnitude
from lab.pruning.method import Method
from lab.pruning.pattern import Pattern
from lab.pruning.rows import choose_rows, masked_rows
from lab.pruning.rows_model import build_smaller
from lab.pruning.sparsegpt import SparseGpt
from lab.pruning.wanda import Wanda
from lab.pruning.whole_model import prune_model
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = pytest.mark.model

LAYERS = (0, 14, 29)
PROJECTIONS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
Calibrated = dict[str, tuple[Tensor, LayerInputs]]


@pytest.fixture(scope="module")
def texts(packaged_model: LoadedModel) -> list[list[int]]:
    ids = encode(packaged_model.tokenizer, find_texts().calibration, 2048).ids
    return [list(ids[start : start + 512]) for start in range(0, 2048, 512)]


@pytest.fixture(scope="module")
def calibrated(packaged_model: LoadedModel, texts: list[list[int]]) -> Calibrated:
    names = [f"model.layers.{i}.{projection}" for i in LAYERS for projection in PROJECTIONS]
    made = finished(calibrating(packaged_model.model, texts, names, keep=2048))
    weights: dict[str, Tensor] = dict(packaged_model.model.named_parameters())
    return {name: (weights[name + ".weight"].detach(), made[name]) for name in names}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("pattern", [Pattern(0.5), Pattern(n=2, m=4)], ids=lambda p: p.label)
def test_sparsegpt_keeps_the_output_better_than_wanda_and_wanda_than_magnitude(
    calibrated: Calibrated, pattern: Pattern, layer: int
) -> None:
    rows = pattern if pattern.m else Pattern(0.5, "row")
    methods: tuple[Method, ...] = (SparseGpt(pattern), Wanda(rows), Magnitude(pattern))
    for projection in PROJECTIONS:
        weight, inputs = calibrated[f"model.layers.{layer}.{projection}"]
        errors = []
        for method in methods:
            made = finished(method.prune(weight, inputs))
            assert made.sparsity == 0.5
            errors.append(
                (output_square(weight, made.values, inputs) / output_square(weight, 0 * weight, inputs)) ** 0.5
            )
        print(layer, projection, pattern.label, [round(e, 4) for e in errors])
        assert errors[0] < errors[1] < errors[2], projection
        # the mutation: the Hessian of other inputs
        mixed = LayerInputs(inputs.tokens, inputs.hessian.flip(0, 1), inputs.mean_abs, inputs.mean_square, inputs.rows)  # type: ignore[union-attr]
        wrong = finished(SparseGpt(pattern).prune(weight, mixed))
        assert output_square(weight, wrong.values, inputs) > output_square(weight, 0 * weight, inputs) * errors[1] ** 2


def test_the_whole_model_is_pruned_and_still_speaks(packaged_model: LoadedModel, texts: list[list[int]]) -> None:
    model = packaged_model.model
    tokens = encode(packaged_model.tokenizer, find_texts().held_out, 512)
    whole = prune_model(model, SparseGpt(Pattern(0.5)), windows=texts)
    assert len(whole.modules) == 210
    assert whole.coverage.sparsity == 0.5
    assert all(one.notes == () for one in whole.modules)
    magnitude = prune_model(model, Magnitude(Pattern(0.5)))
    found = [finished(measuring(m, tokens)).perplexity for m in (model, whole.shell, magnitude.shell)]
    print("perplexity dense, SparseGPT, magnitude at 50 %:", found)
    assert None not in found
    assert found[0] < found[1] < found[2] / 5  # type: ignore[operator]


def test_a_smaller_model_is_really_built(packaged_model: LoadedModel) -> None:
    model = packaged_model.model
    rows = choose_rows(model, channels=0.25, heads=1)
    made = build_smaller(model, rows)
    ids = torch.tensor([encode(packaged_model.tokenizer, find_texts().held_out, 64).ids])
    with torch.no_grad():
        # In float64: a broken model makes much of the last digits of fp32.
        got, want = (deepcopy(m).double()(input_ids=ids).logits for m in (made.model, masked_rows(model, rows)))
    assert float((got - want).abs().max()) < 1e-9 * max(1.0, float(want.abs().max()))
    assert made.multiplied == 0.75 * made.multiplied_before  # three of four channels, six of nine heads
    assert len(linear_names(made.model, head=False)) == 210
