"""Channels and heads removed: the smaller dense model computes what the masked one computes, and is really smaller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from pruning_layers import logits, windows
from transformers import AutoModelForCausalLM

from lab.calibration.gather import calibrating
from lab.decoding.llama_fits import why_not
from lab.decoding.loop import decode
from lab.errors import BadInput, ModelError
from lab.models.linear import out_in
from lab.pruning.rows import LayerRows, Rows, choose_rows, choosing_rows, masked_rows
from lab.pruning.rows_model import build_smaller, building_smaller
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
CUTS: tuple[dict[str, Any], ...] = (
    {"channels": 0.25},
    {"heads": 1},
    {"kv_groups": 1},
    {"channels": 0.4, "heads": 1, "kv_groups": 1},
)


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: " ".join(cut))
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "gemma2"])
@pytest.mark.parametrize("score", ["magnitude", "wanda"])
def test_the_smaller_model_computes_what_the_masked_one_does(
    tiny: Tiny, kind: str, cut: dict[str, Any], score: Any
) -> None:
    model: Any = tiny(kind).model
    want = logits(model)
    rows = choose_rows(model, **cut, score=score, windows=windows())
    made = build_smaller(model, rows)
    small: Any = made.model
    masked = masked_rows(model, rows)
    got = logits(small)
    assert largest(got, logits(masked)) < 1e-4
    assert largest(got, want) > 1e-2  # the cut is felt
    assert torch.equal(logits(model), want)
    assert type(small) is type(model)
    assert made.parameters < made.parameters_before
    assert made.bytes < made.bytes_before
    assert made.multiplied < made.multiplied_before
    assert made.parameters == sum(p.numel() for p in small.parameters())
    # the mutation: the rows of another choice
    other = Rows(tuple(next_units(one) for one in rows.layers), rows.score)
    assert largest(logits(build_smaller(model, other).model), logits(masked)) > 1e-3


def next_units(one: LayerRows) -> LayerRows:
    """As many channels and heads as are kept, each the one after it."""
    parts = one.parts
    group = parts.heads // max(parts.kv_heads, 1)
    heads, kv_heads = one.heads, one.kv_heads
    if len(kv_heads) < parts.kv_heads:
        kv_heads = ((kv_heads + 1) % parts.kv_heads).sort().values
        heads = ((heads + group) % parts.heads).sort().values
    elif len(heads) < parts.heads:
        heads = (heads // group * group + (heads % group + 1) % group).sort().values
    return LayerRows(parts, ((one.channels + 1) % parts.channels).sort().values, heads, kv_heads)


@pytest.mark.parametrize("cut", CUTS[::3], ids=lambda cut: " ".join(cut))
def test_it_runs_on_the_fast_path_and_can_be_saved(tiny: Tiny, tmp_path: Path, cut: dict[str, Any]) -> None:
    loaded = tiny("llama")
    small: Any = build_smaller(loaded.model, choose_rows(loaded.model, **cut)).model
    assert why_not(small) == ""
    fast, plain = (finished(decode(small, windows()[0], max_new_tokens=8, fast=fast)) for fast in (True, False))
    assert fast.token_ids == plain.token_ids
    assert len(fast.token_ids) == 8
    small.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, local_files_only=True)
    assert largest(logits(again), logits(small)) < 1e-5
    assert again.lm_head.weight is again.model.embed_tokens.weight


def test_gpt2_loses_channels_but_no_heads(tiny: Tiny) -> None:
    model: Any = tiny("gpt2").model
    rows = choose_rows(model, channels=0.5, score="wanda", windows=windows())
    made = build_smaller(model, rows)
    assert tuple(made.model.transformer.h[0].mlp.c_fc.weight.shape) == (32, 64)  # type: ignore[union-attr, index]
    assert largest(logits(made.model), logits(masked_rows(model, rows))) < 1e-4
    with pytest.raises(ModelError, match="heads of GPT2Block cannot be removed"):
        choose_rows(model, heads=1)


def test_the_lowest_scores_go(tiny: Tiny) -> None:
    model: Any = tiny("llama").model
    rows = choose_rows(model, channels=0.25, heads=1)
    mlp, attention = model.model.layers[1].mlp, model.model.layers[1].self_attn
    layer = rows.layers[1]
    want = [
        float(
            mlp.gate_proj.weight[j].square().sum()
            + mlp.up_proj.weight[j].square().sum()
            + mlp.down_proj.weight[:, j].square().sum()
        )
        ** 0.5
        for j in range(64)
    ]
    assert layer.channel_scores is not None
    assert layer.channel_scores.tolist() == pytest.approx(want, rel=1e-5)
    assert layer.channels.tolist() == sorted(sorted(range(64), key=lambda j: want[j])[16:])
    size = 8
    heads = [
        float(
            attention.q_proj.weight[h * size : (h + 1) * size].square().sum()
            + attention.o_proj.weight[:, h * size : (h + 1) * size].square().sum()
        )
        for h in range(4)
    ]
    assert layer.heads.tolist() == [max((0, 1), key=lambda h: heads[h]), max((2, 3), key=lambda h: heads[h])]
    assert layer.kv_heads.tolist() == [0, 1]
    assert rows.removed == (16, 2, 0)
    # Wanda: by what reads them, times what they carry
    by_input = choose_rows(model, channels=0.25, score="wanda", windows=windows()).layers[1]
    name = "model.layers.1.mlp.down_proj"
    inputs = finished(calibrating(model, windows(), [name]))[name]
    own = (inputs.mean_square * out_in(mlp.down_proj).square().sum(dim=0)).sqrt()
    assert by_input.channel_scores is not None
    assert torch.allclose(by_input.channel_scores, own, rtol=1e-4)
    assert by_input.channels.tolist() == sorted(own.argsort(stable=True)[16:].tolist())
    # the mutation: the two scores differ
    assert by_input.channels.tolist() != layer.channels.tolist()


def test_both_pause_and_hold_no_context(tiny: Tiny) -> None:
    model = tiny("llama").model
    rows = choose_rows(model, channels=0.5)
    for steps in (choosing_rows(model, channels=0.5, score="wanda", windows=windows()), building_smaller(model, rows)):
        shares = []
        for share in steps:
            assert torch.is_grad_enabled()
            assert torch.empty(1).device.type == "cpu"
            shares.append(share)
        assert shares == sorted(shares)
        assert len(shares) >= 2


def test_what_cannot_be_done_is_refused(tiny: Tiny) -> None:
    model = tiny("llama").model
    with pytest.raises(BadInput, match="nothing to remove"):
        choose_rows(model)
    with pytest.raises(BadInput, match=r"A share of 1\.0 of the channels"):
        choose_rows(model, channels=1.0)
    with pytest.raises(BadInput, match="All 64 channels"):
        choose_rows(model, channels=0.999)
    with pytest.raises(BadInput, match="2 of 2 query heads of each group cannot go"):
        choose_rows(model, heads=2)
    with pytest.raises(BadInput, match="2 of 2 key/value heads cannot go"):
        choose_rows(model, kv_groups=2)
    with pytest.raises(BadInput, match="needs calibration text"):
        choose_rows(model, channels=0.5, score="wanda")
    with pytest.raises(BadInput, match="no score 'l3'"):
        choose_rows(model, channels=0.5, score="l3")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no plain MLP"):
        choose_rows(tiny("mixtral").model, channels=0.5)
    # a class that wants the hidden width to be a multiple of the heads
    three = tiny("llama", num_attention_heads=4, num_key_value_heads=4).model
    with pytest.raises(ModelError, match="LlamaConfig cannot say num_attention_heads 3"):
        build_smaller(three, choose_rows(three, kv_groups=1))
