"""Merging where weights are rounded: what survives, by which base."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from lora_made import GPT2, LLAMA, logits, trained, unchanged, weights_of

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, ModelError
from lab.lora.adapter import Factors
from lab.lora.attach import Attached
from lab.lora.merge import MergedShell
from lab.lora.rounding import BASES, Base, RoundedMerge, Rounder, ToBfloat16, ToCodes, merging_rounded
from lab.models.linear import out_in
from lab.models.loading import LoadedModel
from lab.models.shell import make_shell
from lab.quantization.gptq import Gptq
from lab.quantization.grid import Grid
from lab.quantization.nearest import Nearest
from lab.quantization.nf4 import Nf4
from lab.quantization.packed.pack import pack_shell
from lab.steps import finished

Tiny = Callable[..., LoadedModel]
INT8, INT4 = ToCodes(Nearest(Grid(8, "absmax", "row")), title="int8"), ToCodes(Nearest(Grid(4, "asymmetric", 32)))
NF4 = ToCodes(Nf4(32))


def merged(model: Any, adapter: Any, rounder: Rounder, base: Base = "rounded", factor: float = 1.0) -> RoundedMerge:
    return finished(merging_rounded(model, adapter, rounder, base=base, factor=factor))


def test_bf16_by_hand(tiny: Tiny) -> None:
    model = tiny().model
    adapter = trained(model, size=0.001)
    found = merged(model, adapter, ToBfloat16())
    for module in found.modules:
        w = out_in(model.get_submodule(module.module)).bfloat16()
        dw = adapter.delta(module.module)
        now = (w.float() + dw).bfloat16()
        error = (now.double() - w.double()) - dw.double()
        assert module.vanished == int(((now == w) & (dw != 0)).sum()) > 0
        assert module.entries == int((dw != 0).sum())
        assert module.largest_error == pytest.approx(float(error.abs().max()), rel=1e-6)
        assert module.lost == pytest.approx(float(error.square().sum() / dw.double().square().sum()), rel=1e-6)
        assert module.codes_changed is None
        assert torch.equal(out_in(found.merged.get_submodule(module.module)), now.float())
        assert torch.equal(out_in(found.unmerged.get_submodule(module.module)), w.float())
    assert found.base == "the weights rounded to bf16"


def test_a_small_update_vanishes_and_a_large_one_does_not(tiny: Tiny) -> None:
    model = tiny().model
    lost = [merged(model, trained(model, size=size), ToBfloat16()).lost for size in (1e-5, 1e-2, 1)]
    gone = [merged(model, trained(model, size=size), ToBfloat16()).vanished for size in (1e-5, 1e-2, 1)]
    assert lost[0] > 0.5 > lost[1] > 1e-3 > lost[2]
    assert gone[0] > 0.9 > gone[1] > gone[2]


def test_a_model_that_is_bf16_merges_as_the_measure_says(tiny: Tiny) -> None:
    model = tiny(dtype="bfloat16").model
    adapter = trained(model)
    plain = MergedShell(make_shell(model))
    plain.merge(adapter)
    found = merged(model, adapter, ToBfloat16())
    for name in adapter.tensors:
        assert torch.equal(out_in(found.merged.get_submodule(name)), out_in(plain.shell.get_submodule(name)))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("rounder", [INT8, INT4, NF4], ids=["int8", "int4", "nf4"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_through_codes(tiny: Tiny, kind: str, rounder: ToCodes, base: Base) -> None:
    model = tiny(kind).model
    before = weights_of(model)
    adapter = trained(model, GPT2 if kind == "gpt2" else LLAMA, size=0.01)
    found = merged(model, adapter, rounder, base)
    assert unchanged(model, before)
    assert rounder.label in found.base
    assert ("dequantized" in found.base) is (base == "rounded")
    assert ("original float32" in found.base) is (base == "original")
    for module in found.modules:
        weight, dw = out_in(model.get_submodule(module.module)), adapter.delta(module.module)
        first = finished(rounder.method.quantize(weight))
        start = first.dequantize() if base == "rounded" else weight
        second = finished(rounder.method.quantize(start + dw))
        assert torch.equal(out_in(found.merged.get_submodule(module.module)), second.dequantize())
        assert module.codes_changed == int((first.tensors()["codes"] != second.tensors()["codes"]).sum())
        error = (second.dequantize().double() - first.dequantize().double()) - dw.double()
        assert module.error_energy == pytest.approx(float(error.square().sum()), rel=1e-6)
    assert found.lost > 0
    # unmerged beside the same base is what the merge misses: its logits differ, by more with fewer bits
    with Attached(found.unmerged, [adapter]).using("made") as shell:
        assert (logits(shell) - logits(found.merged)).abs().max() > 1e-3


def test_fewer_bits_lose_more(tiny: Tiny) -> None:
    model = tiny().model
    adapter = trained(model, size=0.01)
    bf16, int8, nf4 = (merged(model, adapter, rounder).lost for rounder in (ToBfloat16(), INT8, NF4))
    assert bf16 < 0.2 * int8 < 0.1 * nf4


def test_the_two_bases_are_told_apart(tiny: Tiny) -> None:
    model = tiny().model
    adapter = trained(model, size=0.01)
    one, two = (merged(model, adapter, NF4, base) for base in BASES)
    assert one.base != two.base
    assert not torch.equal(logits(one.merged), logits(two.merged))
    assert torch.equal(logits(one.unmerged), logits(two.unmerged))


def test_exact_rounding_loses_nothing(tiny: Tiny) -> None:
    model = tiny(dtype="bfloat16").model
    name = "model.layers.0.self_attn.q_proj"
    weight = out_in(model.get_submodule(name)).float()
    # an update that doubles one row: bf16 holds it exactly
    pair = Factors(weight[:1].clone(), torch.zeros(32, 1).index_fill_(0, torch.tensor([0]), 1.0))
    one = trained(model, ("model.layers.0.self_attn.q_proj",), rank=1, alpha=1)
    found = merged(model, replace(one, tensors={name: pair}), ToBfloat16())
    assert found.lost == 0
    assert found.vanished == 0
    assert found.largest_error == 0


def test_a_method_with_inputs(tiny: Tiny) -> None:
    model = tiny().model
    name = "model.layers.0.self_attn.q_proj"
    adapter = trained(model, (name,), size=0.01)
    method = Gptq(Grid(4, "asymmetric", 32))
    with pytest.raises(BadInput):
        merged(model, adapter, ToCodes(method))
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    inputs = calibrated(x)
    found = merged(model, adapter, ToCodes(method, {name: inputs}))
    assert found.modules[0].codes_changed is not None
    assert found.rounding == method.label


def calibrated(x: torch.Tensor) -> LayerInputs:
    return LayerInputs(len(x), 2.0 * x.t() @ x / len(x), x.abs().mean(dim=0), x.square().mean(dim=0), x)


def test_it_pauses_and_says_how_far_it_is(tiny: Tiny) -> None:
    model = tiny().model
    adapter = trained(model)
    shares = list(merging_rounded(model, adapter, INT8))
    assert len(shares) >= 2 * len(adapter.tensors)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_what_cannot_be_is_refused_at_once(tiny: Tiny) -> None:
    model = tiny().model
    adapter = trained(model)
    with pytest.raises(BadInput, match="base 'both' is unknown"):
        merging_rounded(model, adapter, INT8, base="both")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="factor"):
        merging_rounded(model, adapter, INT8, factor=-1)
    with pytest.raises(ModelError, match="does not fit"):
        merging_rounded(tiny("gpt2").model, adapter, INT8)
    with pytest.raises(ModelError, match="PackedLinear"):
        merging_rounded(pack_shell(model, 8).shell, adapter, INT8)


@pytest.mark.parametrize("base", BASES)
def test_a_tied_head_is_its_own_in_both_shells_and_stays_so(tiny: Tiny, base: Base) -> None:
    model = tiny().model
    embedding = model.get_input_embeddings().weight
    before = embedding.clone()
    found = merged(model, trained(model, ("lm_head", "q_proj"), size=0.01), INT8, base)
    for shell in (found.unmerged, found.merged):
        own: Any = shell
        weight = own.lm_head.weight
        own.tie_weights()  # what transformers does at a save or a load
        assert own.lm_head.weight is weight
        assert own.get_input_embeddings().weight is embedding
        assert not own.config.tie_word_embeddings
    assert model.config.tie_word_embeddings
    assert model.lm_head.weight is embedding
    assert torch.equal(embedding, before)
    others: Any = merged(model, trained(model, ("q_proj",), size=0.01), INT8, base).merged
    assert others.config.tie_word_embeddings
    assert others.lm_head.weight is others.get_input_embeddings().weight
