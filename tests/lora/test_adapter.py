"""An adapter: counts, targets, its start, and why it would have no effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from lora_made import GPT2, LLAMA, trained

from lab.errors import BadInput, NotFound
from lab.lora.adapter import (
    MAX_RANK,
    Adapter,
    BaseFacts,
    Factors,
    LoraConfig,
    effectless,
    lora_parameters,
    misfit,
    new_adapter,
    target_modules,
)
from lab.models.loading import LoadedModel
from lab.quantization.packed.pack import pack_shell

Tiny = Callable[..., LoadedModel]


def test_the_lesson_s_count() -> None:
    assert lora_parameters(4096, 4096, 8) == (65_536, 16_777_216)
    pair = Factors(torch.zeros(8, 4096), torch.zeros(4096, 8))
    adapter = Adapter("a", LoraConfig(8, 16, ("x",)), {"x": pair}, BaseFacts("", {"x": (4096, 4096)}))
    assert (adapter.parameters, adapter.base_parameters, adapter.bytes) == (65_536, 16_777_216, 4 * 65_536)
    assert f"{adapter.share:.1%}" == "0.4%"


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_new_one_is_counted_and_does_nothing(tiny: Tiny, kind: str) -> None:
    model = tiny(kind).model
    adapter = new_adapter(model, LoraConfig(3, 6, LLAMA if kind == "llama" else GPT2), 0)
    for name, (a, b) in adapter.tensors.items():
        weight = model.get_submodule(name).weight
        rows, columns = weight.t().shape if kind == "gpt2" else weight.shape
        assert (a.shape, b.shape) == ((3, columns), (rows, 3))
        assert adapter.base.shapes[name] == (rows, columns)
        assert 0.5 / math.sqrt(columns) < a.abs().max() <= 1 / math.sqrt(columns)
        assert not b.any()
    assert adapter.parameters == sum(3 * (rows + columns) for rows, columns in adapter.base.shapes.values())
    assert adapter.base.vocabulary == 320
    assert adapter.base.transposed is (kind == "gpt2")
    assert "never trained" in effectless(adapter, model)


def test_the_seed_decides(tiny: Tiny) -> None:
    model, config = tiny().model, LoraConfig(2, 4, ("q_proj",))
    one, same, other = (new_adapter(model, config, seed) for seed in (5, 5, 6))
    assert all(torch.equal(one.tensors[n].a, same.tensors[n].a) for n in one.tensors)
    assert not any(torch.equal(one.tensors[n].a, other.tensors[n].a) for n in one.tensors)


def test_scales() -> None:
    assert LoraConfig(8, 16, ("x",)).scale == 2
    assert LoraConfig(8, 16, ("x",), rslora=True).scale == pytest.approx(16 / math.sqrt(8))


@pytest.mark.parametrize("rank", [0, -1, MAX_RANK + 1, 2.5, True, "8", None])
def test_ranks_out_of_bounds(rank: object) -> None:
    with pytest.raises(BadInput, match="rank"):
        LoraConfig(rank, 16, ("x",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "alpha", [math.nan, math.inf, -math.inf, 1.1e6, -1.1e6, pytest.param(10**400, id="10**400"), "16", None, True]
)
def test_alphas_that_are_none(alpha: object) -> None:
    with pytest.raises(BadInput, match="Alpha"):
        LoraConfig(8, alpha, ("x",))  # type: ignore[arg-type]


def test_targets_are_names_or_their_ends(tiny: Tiny) -> None:
    model = tiny().model
    assert target_modules(model, ("v_proj", "layers.0.self_attn.q_proj")) == [
        "model.layers.0.self_attn.q_proj",
        "model.layers.0.self_attn.v_proj",
        "model.layers.1.self_attn.v_proj",
    ]
    assert target_modules(model, ("lm_head", "lm_head")) == ["lm_head"]
    with pytest.raises(NotFound):
        target_modules(model, ("proj",))  # a part of a name is none


@pytest.mark.parametrize("targets", [("q_proj", "c_attn"), ("c_attn",), ("q_proj ",)])
def test_an_unknown_target_is_an_error_that_names_what_there_is(tiny: Tiny, targets: tuple[str, ...]) -> None:
    with pytest.raises(
        NotFound, match="q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head"
    ) as told:
        new_adapter(tiny().model, LoraConfig(4, 8, targets), 0)
    assert repr(targets[-1]) in told.value.message


def test_an_embedding_is_no_target(tiny: Tiny) -> None:
    with pytest.raises(NotFound, match="is no linear module"):
        target_modules(tiny().model, ("embed_tokens",))


def test_a_trained_one_has_an_effect(tiny: Tiny) -> None:
    model = tiny().model
    assert effectless(trained(model), model) == ""
    assert effectless(trained(tiny("gpt2").model, GPT2), tiny("gpt2").model) == ""


def test_why_an_adapter_has_no_effect(tiny: Tiny) -> None:
    model = tiny().model
    made = trained(model)
    zero_a = {n: Factors(torch.zeros_like(a), b) for n, (a, b) in made.tensors.items()}
    halves = {}
    for name, (a, b) in made.tensors.items():
        left, right = a.clone(), b.clone()
        left[2:], right[:, :2] = 0, 0
        halves[name] = Factors(left, right)
    assert "A is zero" in effectless(replace(made, tensors=zero_a), model)
    assert "B A is zero" in effectless(replace(made, tensors=halves), model)
    assert "scale is zero" in effectless(replace(made, config=replace(made.config, alpha=0)), model)
    assert "adapts no module" in effectless(replace(made, tensors={}), model)
    renamed = {name.replace("model.", "", 1): pair for name, pair in made.tensors.items()}
    assert "are not in LlamaForCausalLM" in effectless(replace(made, tensors=renamed), model)
    assert "32 x 32, its update 96 x 32" in misfit(
        replace(made, tensors={"model.layers.0.self_attn.q_proj": Factors(torch.ones(2, 32), torch.ones(96, 2))}), model
    )
    others = replace(made, base=replace(made.base, vocabulary=32_000))
    assert "vocabulary of 32,000, and the model has 320" in effectless(others, model)
    assert misfit(replace(made, base=replace(made.base, vocabulary=None)), model) == ""
    norm = {"model.norm": Factors(torch.ones(2, 32), torch.ones(32, 2))}
    assert "no linear module" in effectless(replace(made, tensors=norm), model)


@pytest.mark.parametrize("packed", [False, True])
def test_factors_that_cancel_have_no_effect(tiny: Tiny, *, packed: bool) -> None:
    model = tiny().model
    other = pack_shell(model, 8).shell if packed else model
    made = trained(model)
    pairs, apart = {}, {}
    for name, (a, b) in made.tensors.items():
        half, left = a[:2] * (1 + 1e-7), b[:, :2]
        pairs[name] = Factors(torch.cat([a[:2], half]), torch.cat([left, -left], dim=1))
        apart[name] = Factors(torch.cat([a[:2], half * 0.99]), torch.cat([left, -left], dim=1))
    cancelled = replace(made, tensors=pairs)
    assert 0 < max(float(cancelled.delta(name).abs().max()) for name in pairs) < 1e-6
    assert "its factors cancel" in effectless(cancelled, other)
    assert effectless(replace(made, tensors=apart), other) == ""
    if not packed:
        assert "too small" in effectless(trained(model, size=1e-8), model)


def test_one_live_module_is_an_effect(tiny: Tiny) -> None:
    model = tiny().model
    made = new_adapter(model, LoraConfig(2, 4, ("q_proj", "v_proj")), 0)
    tensors = dict(made.tensors)
    name = next(iter(tensors))
    tensors[name] = Factors(tensors[name].a, torch.ones(32, 2))
    assert effectless(replace(made, tensors=tensors), model) == ""


def test_a_module_may_have_its_own_alpha(tiny: Tiny) -> None:
    made = trained(tiny().model, ("q_proj",))
    first, second = made.tensors
    changed = replace(made, alphas={first: 24.0})
    assert (changed.scale(first), changed.scale(second)) == (6, 2)
    assert torch.allclose(changed.delta(first), 3 * made.delta(first))
