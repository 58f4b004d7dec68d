"""Merging and unmerging: bit for bit, refused twice, the same kind of model, and what a head that is tied does."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from lora_made import GPT2, LLAMA, logits, trained, unchanged, weights_of
from torch import nn

from lab.errors import BadInput, ModelError
from lab.lora.adapter import Factors
from lab.lora.attach import Attached
from lab.lora.merge import MergedShell, difference_in_kind, merged_weight
from lab.models.linear import out_in, set_weight
from lab.models.loading import LoadedModel
from lab.models.shell import make_shell
from lab.quantization.packed.pack import pack_shell
from lab.steps import finished

Tiny = Callable[..., LoadedModel]
CYCLES = 50


def targets(kind: str) -> tuple[str, ...]:
    return GPT2 if kind == "gpt2" else LLAMA


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_merged_and_unmerged_agree_in_fp32(tiny: Tiny, kind: str) -> None:
    model = tiny(kind).model
    adapter = trained(model, targets(kind))
    merging = MergedShell(make_shell(model))
    for factor in (1.0, 0.5, 2.0):
        merging.merge(adapter, factor)
        with Attached(make_shell(model), [adapter]).using("made", factor) as shell:
            assert (logits(shell) - logits(merging.shell)).abs().max() <= 5e-5  # weights of 0.3: see test_oracle_peft
            assert (logits(model) - logits(merging.shell)).abs().max() > 0.1
        with Attached(make_shell(model), [adapter]).using("made", factor * 0.99) as shell:
            assert (logits(shell) - logits(merging.shell)).abs().max() > 1e-3  # the check tells a wrong scale
        merging.unmerge()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_fifty_cycles_end_with_the_very_weights(tiny: Tiny, kind: str, dtype: str) -> None:
    model = tiny(kind, dtype=dtype).model
    before, pointers = weights_of(model), {n: p.data_ptr() for n, p in model.named_parameters()}
    shell = make_shell(model)
    merging, adapter = MergedShell(shell), trained(model, targets(kind))
    for _ in range(CYCLES):
        merging.merge(adapter)
        assert merging.unmerge() == "made"
    assert unchanged(shell, before)
    assert unchanged(model, before)
    assert {n: p.data_ptr() for n, p in shell.named_parameters()} == pointers
    assert torch.equal(logits(shell), logits(model))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_subtracting_drifts(tiny: Tiny, dtype: str) -> None:
    """The mutation: what naive code does."""
    model = tiny(dtype=dtype).model
    adapter = trained(model)
    name = "model.layers.0.mlp.down_proj"
    shell = make_shell(model)
    for _ in range(CYCLES):
        for sign in (1, -1):
            module = shell.get_submodule(name)
            set_weight(module, (out_in(module).float() + sign * adapter.delta(name)).to(out_in(module).dtype))
    drift = (out_in(shell.get_submodule(name)).float() - out_in(model.get_submodule(name)).float()).abs().max()
    assert drift > (1e-9 if dtype == "float32" else 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kind", "names"), [("llama", (*LLAMA, "lm_head")), ("gpt2", GPT2)])
def test_the_merged_model_is_of_the_same_kind(tiny: Tiny, kind: str, dtype: str, names: tuple[str, ...]) -> None:
    model = tiny(kind, dtype=dtype).model
    merging = MergedShell(make_shell(model))
    facts = merging.merge(trained(model, names))
    assert difference_in_kind(model, merging.shell) == ""
    assert facts.base == f"the model's own {dtype} weights"
    assert facts.bytes == sum(out_in(model.get_submodule(n)).nbytes for n in facts.modules)
    with Attached(make_shell(model), [trained(model, names)]).using("made") as shell:
        assert "LoraLinear" in difference_in_kind(model, shell)
    weight = model.get_submodule(facts.modules[0]).weight
    for other in (torch.zeros(3, 5, dtype=weight.dtype), weight.detach().double()):
        changed = make_shell(model)
        changed.get_submodule(facts.modules[0]).weight = nn.Parameter(other, requires_grad=False)
        assert facts.modules[0] in difference_in_kind(model, changed)


def test_merging_twice_is_refused(tiny: Tiny) -> None:
    model = tiny().model
    merging = MergedShell(make_shell(model))
    merging.merge(trained(model))
    once = logits(merging.shell)
    for name in ("made", "other"):
        with pytest.raises(BadInput, match="'made' is merged already"):
            merging.merge(trained(model, name=name))
    assert torch.equal(logits(merging.shell), once)
    merging.unmerge()
    with pytest.raises(BadInput, match="No adapter is merged"):
        merging.unmerge()
    merging.merge(trained(model))
    assert torch.equal(logits(merging.shell), once)


def test_a_tied_head_gets_its_own_weight_and_the_tie_comes_back(tiny: Tiny) -> None:
    model: Any = tiny().model
    embedding = model.get_input_embeddings().weight
    assert model.lm_head.weight is embedding
    shell: Any = make_shell(model)
    merging = MergedShell(shell)
    before, count = embedding.clone(), len(model.state_dict())
    facts = merging.merge(trained(model, ("lm_head",)))
    assert facts.untied
    assert shell.get_input_embeddings().weight is embedding
    assert torch.equal(embedding, before)
    assert shell.lm_head.weight is not embedding
    assert not shell.config.tie_word_embeddings
    assert model.config.tie_word_embeddings
    shell.tie_weights()  # what transformers does at a save or a load
    assert shell.lm_head.weight is not embedding
    merging.unmerge()
    assert shell.lm_head.weight is shell.get_input_embeddings().weight is embedding
    assert shell.config.tie_word_embeddings
    assert len(shell.state_dict()) == count


def test_what_cannot_be_merged_is_refused_before_anything_changes(tiny: Tiny) -> None:
    model = tiny().model
    adapter = trained(model)
    attached = Attached(make_shell(model), [adapter])
    with pytest.raises(ModelError, match="has adapters on"):
        MergedShell(attached.shell)
    merging = MergedShell(make_shell(model))
    late = Attached(merging.shell, [adapter])
    with pytest.raises(ModelError, match="has adapters on"):
        merging.merge(adapter)
    late.detach()
    with pytest.raises(ModelError, match="not in LlamaForCausalLM"):
        merging.merge(trained(tiny("gpt2").model, GPT2))
    with pytest.raises(BadInput, match="factor"):
        merging.merge(adapter, 3)
    with pytest.raises(ModelError, match="PackedLinear: it has no plain weight"):
        MergedShell(pack_shell(model, 8).shell).merge(adapter)
    assert merging.merged is None
    assert torch.equal(logits(merging.shell), logits(model))


def test_the_merge_is_rounded_once(tiny: Tiny) -> None:
    model = tiny(dtype="bfloat16").model
    adapter = trained(model)
    name = next(iter(adapter.tensors))
    exact = out_in(model.get_submodule(name)).double() + adapter.delta(name).double()
    merged = merged_weight(model.get_submodule(name), adapter, name)
    assert merged.dtype == torch.bfloat16
    assert torch.equal(merged, exact.float().bfloat16())
    twice = out_in(model.get_submodule(name)) + adapter.delta(name).bfloat16()
    assert not torch.equal(merged, twice)


def test_two_merges_that_take_turns_do_not_both_finish(tiny: Tiny) -> None:
    model = tiny().model
    merging = MergedShell(make_shell(model))
    one, two = merging.merging(trained(model)), merging.merging(trained(model, name="other"))
    next(one)
    with pytest.raises(BadInput, match="'made' is being merged now"):
        next(two)
    assert finished(one).adapter == "made"
    once = logits(merging.shell)
    with pytest.raises(BadInput, match="merged already"):
        finished(merging.merging(trained(model, name="other")))
    assert torch.equal(logits(merging.shell), once)
    merging.unmerge()
    assert torch.equal(logits(merging.shell), logits(model))


def test_a_merge_that_is_closed_or_fails_lets_the_next_begin(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny().model
    adapter = trained(model, (*LLAMA, "lm_head"))
    merging = MergedShell(make_shell(model))
    begun = merging.merging(adapter)
    next(begun)
    begun.close()
    with pytest.raises(ModelError, match="does not fit"):
        merging.merge(trained(tiny("gpt2").model, GPT2))
    done: list[nn.Module] = []

    def full(module: nn.Module, values: torch.Tensor) -> None:
        if len(done) == 3:
            raise MemoryError
        done.append(module)
        set_weight(module, values)

    with monkeypatch.context() as patch:
        patch.setattr("lab.lora.merge.set_weight", full)
        with pytest.raises(MemoryError):
            merging.merge(adapter)
    shell: Any = merging.shell
    assert merging.merged is None
    assert shell.config.tie_word_embeddings
    assert torch.equal(logits(shell), logits(model))
    assert merging.merge(adapter).untied


def test_a_merge_that_is_not_finite_is_refused_and_named(tiny: Tiny) -> None:
    model = deepcopy(tiny().model).half()
    adapter = trained(model, ("q_proj",))
    name = next(iter(adapter.tensors))
    merging = MergedShell(make_shell(model))
    for size, words in ((1e30, "update of .* is not finite"), (200.0, "is not finite in float16")):
        pairs = {
            n: Factors(torch.full_like(a, size), torch.full_like(b, size)) for n, (a, b) in adapter.tensors.items()
        }
        with pytest.raises(ModelError, match=words) as told:
            merging.merge(replace(adapter, tensors=pairs))
        assert name in told.value.message
    assert torch.equal(out_in(merging.shell.get_submodule(name)), out_in(model.get_submodule(name)))
    merging.merge(adapter)
