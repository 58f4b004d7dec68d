"""AWQ: never worse than rounding on what it was searched on, folds that change nothing, reasons where none is valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from calibrated import end, inputs_of, layer, nearest, output_square
from test_calibration import windows

from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.calibration.walk import LayerWalk
from lab.errors import BadInput
from lab.models.linear import linear_names
from lab.models.shell import make_shell
from lab.quantization.awq import RATIOS, Awq, AwqWeight, channel_scales, rounded
from lab.quantization.awq_layer import folding
from lab.quantization.awq_search import blocks_of, fold
from lab.quantization.grid import KINDS, Grid, Kind
from lab.quantization.whole_model import quantize_model
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
GRID = Grid(3, "asymmetric", 32)


def awq(weight: torch.Tensor, inputs: LayerInputs, grid: Grid = GRID, clip: bool = True) -> AwqWeight:
    made = finished(Awq(grid, clip).quantize(weight, inputs))
    assert isinstance(made, AwqWeight)
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [32, "row", "tensor"])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_never_worse_than_round_to_nearest_on_its_own_text(kind: Kind, share: int, seed: int) -> None:
    weight, inputs = layer(24, 192, seed=seed)
    grid = Grid(3, kind, share)
    plain = output_square(weight, nearest(weight, grid), inputs)
    scaled, clipped = (
        output_square(weight, awq(weight, inputs, grid, clip).dequantize(), inputs) for clip in (False, True)
    )
    assert scaled <= plain * (1 + 1e-6)
    assert clipped <= scaled * (1 + 1e-4)
    made = awq(weight, inputs, grid, False)
    assert made.errors[0] == pytest.approx(plain / output_square(weight, 0 * weight, inputs), rel=1e-3)
    assert min(made.errors) == made.errors[RATIOS.index(made.ratio)]
    # the mutation: the scales upside down
    wrong = channel_scales(1 / inputs.mean_abs, 0.5)
    assert output_square(weight, rounded(weight * wrong, grid) / wrong, inputs) > scaled


def test_ratio_zero_is_round_to_nearest() -> None:
    weight, inputs = layer(24, 192)
    scales = channel_scales(inputs.mean_abs, 0.0)
    assert torch.equal(scales, torch.ones(192))
    assert torch.equal(rounded(weight * scales, GRID) / scales, nearest(weight, GRID))
    assert not torch.equal(channel_scales(inputs.mean_abs, 0.05), scales)


def test_scales_are_balanced_and_name_the_channels_they_protect() -> None:
    weight, inputs = layer(24, 192)
    scales = channel_scales(inputs.mean_abs, 0.7)
    assert float(scales.max() * scales.min()) == pytest.approx(1.0, rel=1e-5)
    made = awq(weight, inputs)
    assert made.ratio > 0
    assert made.protected == tuple(inputs.mean_abs.topk(8).indices.tolist())
    assert made.channel_scales is not None
    assert made.storage.other_bits == 32 * 192


def test_channels_without_inputs_are_left_alone() -> None:
    weight, inputs = layer(24, 192)
    x = inputs.rows.clone()
    x[:, [0, 5]] = 0
    scales = channel_scales(x.abs().mean(dim=0), 0.95)
    assert scales[[0, 5]].tolist() == [1.0, 1.0]
    made = awq(weight, inputs_of(x))
    assert torch.isfinite(made.dequantize()).all()
    assert float((made.dequantize() - weight)[:, [0, 5]].abs().max()) < 1.0
    odd = replace(inputs_of(x), mean_abs=torch.tensor([float("nan"), float("inf")] + [1.0] * 190))
    assert torch.isfinite(channel_scales(odd.mean_abs, 0.5)).all()
    assert awq(weight, inputs_of(0 * x)).ratio == 0.0


def test_five_tokens_are_enough_and_one_is_not(tiny: Tiny) -> None:
    weight, inputs = layer(24, 192)
    few = inputs_of(inputs.rows[:5])
    assert output_square(weight, awq(weight, few).dequantize(), few) <= output_square(
        weight, nearest(weight, GRID), few
    )
    with pytest.raises(BadInput, match="calibrated on 1 token; at least 2"):
        awq(weight, inputs_of(inputs.rows[:1]))
    model = tiny("llama").model
    whole = quantize_model(model, Awq(Grid(4, "absmax", 32)), windows=[[5, 6, 7, 8, 9]])
    assert len(whole.modules) == 14
    with pytest.raises(BadInput, match="Calibration on 1 token"):
        quantize_model(model, Awq(Grid(4, "absmax", 32)), windows=[[5]])
    with pytest.raises(BadInput, match="needs a layer's calibration inputs"):
        finished(Awq(GRID).quantize(weight))
    with pytest.raises(BadInput, match="AWQ needs calibration text"):
        quantize_model(model, Awq(Grid(4, "absmax", 32)))


@pytest.mark.parametrize(("kind", "heads"), [("llama", 2), ("llama", 4), ("qwen2", 2), ("qwen3", 2), ("mistral", 2)])
def test_folding_alone_changes_nothing(tiny: Tiny, kind: str, heads: int) -> None:
    model = tiny(kind, num_key_value_heads=heads).model
    ids = torch.tensor([windows()[0]])
    shell = make_shell(model)
    g = torch.Generator().manual_seed(3)
    for layer_ in shell.model.layers:  # type: ignore[union-attr, operator]
        for block in blocks_of(layer_):
            if not block.reason:
                width = layer_.get_submodule(block.names[0]).in_features
                fold(layer_, block, torch.rand(width, generator=g).mul(2).sub(1).exp())  # type: ignore[arg-type]
    with torch.no_grad():
        want, got = (m(input_ids=ids).logits for m in (model, shell))
    assert float((want - got).abs().max()) < 1e-4
    assert not torch.equal(shell.model.layers[0].mlp.up_proj.weight, model.model.layers[0].mlp.up_proj.weight)
    # the mutation: one norm that was not divided
    shell.model.layers[0].input_layernorm = model.model.layers[0].input_layernorm
    with torch.no_grad():
        assert float((shell(input_ids=ids).logits - want).abs().max()) > 1e-2


def test_value_to_output_is_folded_only_where_heads_are_not_shared(tiny: Tiny) -> None:
    grouped_, own = (tiny("llama", num_key_value_heads=heads).model for heads in (2, 4))
    assert [b.reason[:29] for b in blocks_of(grouped_.model.layers[0])] == ["", "A value row feeds 2 columns o", "", ""]
    assert [b.reason for b in blocks_of(own.model.layers[0])] == [""] * 4
    for kind in ("gpt2", "gemma2", "gemma3", "mixtral"):
        model = tiny(kind).model
        _, layers = next((n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList))
        assert blocks_of(layers[0]) == ()


def test_a_layer_search_never_ends_worse_than_rounding(tiny: Tiny) -> None:
    model = tiny("llama", num_key_value_heads=4).model
    shell = make_shell(model)
    names, texts = linear_names(model, head=False), windows()
    walk = LayerWalk(shell, texts)
    end(walk.embed())
    inputs = end(calibrating(model, texts, names))
    grids = {name: Grid(3, "absmax", 16) for name in names if ".layers.0." in name}
    before = [h.clone() for h in walk.hidden]
    folded = end(folding(walk, 0, grids, inputs))
    assert len(folded.searches) == 4
    for search in folded.searches:
        assert search.errors[search.best] == min(search.errors) <= search.errors[0]
        assert len(search.errors) == 20
    assert any(search.best > 0 for search in folded.searches)
    assert all(torch.equal(a, b) for a, b in zip(before, walk.hidden, strict=True))
    ids = torch.tensor([texts[0]])
    with torch.no_grad():
        assert float((shell(input_ids=ids).logits - model(input_ids=ids).logits).abs().max()) < 1e-4


def test_other_architectures_keep_their_scales_beside_the_codes(tiny: Tiny) -> None:
    model = tiny("gpt2").model
    whole = quantize_model(model, Awq(Grid(4, "absmax", 32)), windows=windows(), keep_codes=True)
    kept = [m.quantized for m in whole.modules]
    assert all(isinstance(k, AwqWeight) for k in kept)
    assert any(isinstance(k, AwqWeight) and k.channel_scales is not None for k in kept)
    assert whole.searches == ()
    assert torch.equal(
        whole.shell.get_submodule("transformer.h.0.ln_1").weight,  # type: ignore[arg-type]
        model.get_submodule("transformer.h.0.ln_1").weight,  # type: ignore[arg-type]
    )
