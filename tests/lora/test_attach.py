"""Adapters on a shell: unmerged, switched, scaled, taken off; and through the fast path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from lora_made import GPT2, IDS, LLAMA, exact, logits, trained, unchanged, weights_of
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lab.decoding.llama import LlamaPass
from lab.decoding.llama_fits import why_not
from lab.errors import BadInput, ModelError, NotFound
from lab.lora.adapter import Adapter, BaseFacts, Factors, LoraConfig, new_adapter
from lab.lora.attach import Attached, LoraLinear
from lab.lora.merge import MergedShell
from lab.models.loading import LoadedModel
from lab.models.shell import make_shell
from lab.quantization.packed.modules import PackedLinear
from lab.quantization.packed.pack import pack_shell

Tiny = Callable[..., LoadedModel]
ALL = (*LLAMA, "k_proj", "up_proj")


def targets(kind: str) -> tuple[str, ...]:
    return GPT2 if kind == "gpt2" else LLAMA


def steps(model: nn.Module) -> Tensor:
    """Logits of each position by the fast path: some at once, then one by one."""
    run = LlamaPass(model, 64)
    return rows(run)


@torch.inference_mode()
def rows(run: LlamaPass) -> Tensor:
    found = [run.rows(IDS[:5], 0).logits]
    found += [run.rows(IDS[i : i + 1], i).logits for i in range(5, len(IDS))]
    return torch.cat(found)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_a_new_adapter_leaves_the_logits_bit_for_bit(tiny: Tiny, kind: str) -> None:
    model = tiny(kind).model
    fresh = new_adapter(model, LoraConfig(4, 8, targets(kind)), 3)
    with Attached(make_shell(model), [fresh]).using("new") as shell:
        assert torch.equal(logits(shell), logits(model))
    with Attached(make_shell(model), [trained(model, targets(kind))]).using("made") as shell:
        assert not torch.equal(logits(shell), logits(model))  # the same check tells an adapter that does something


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_unmerged_layer_is_the_formula(tiny: Tiny, kind: str) -> None:
    model = tiny(kind).model
    adapter = trained(model, targets(kind))
    with Attached(make_shell(model), [adapter]).using("made", 1.5) as shell:
        for name in adapter.tensors:
            wrapped, plain = shell.get_submodule(name), model.get_submodule(name)
            x = exact(5, wrapped.in_features, 9)
            wanted = plain(x) + x @ adapter.delta(name, 1.5).t()
            assert torch.allclose(wrapped(x), wanted, atol=1e-5)
            assert not torch.allclose(wrapped(x), plain(x) + x @ adapter.delta(name).t(), atol=1e-3)


def test_a_conv1d_equals_a_linear_of_the_transpose() -> None:
    conv, linear = Conv1D(10, 6), nn.Linear(6, 10)
    conv.weight.data, conv.bias.data = exact(6, 10, 1), exact(1, 10, 2)[0]
    linear.weight.data, linear.bias.data = exact(6, 10, 1).t().contiguous(), exact(1, 10, 2)[0]
    pair = Factors(exact(2, 6, 3), exact(10, 2, 4))
    x, outputs = exact(3, 6, 5), []
    for module in (conv, linear):
        model = nn.ModuleDict({"m": module}).requires_grad_(False)
        adapter = Adapter("a", LoraConfig(2, 4, ("m",)), {"m": pair}, BaseFacts("", {"m": (10, 6)}))
        with Attached(make_shell(model), [adapter]).using("a") as shell:
            outputs.append(shell.get_submodule("m")(x))
        merging = MergedShell(make_shell(model))
        merging.merge(adapter)
        outputs.append(merging.shell.get_submodule("m")(x))
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])
    assert not torch.equal(outputs[0], linear(x))


def test_the_factor_is_read_at_each_call(tiny: Tiny) -> None:
    model = tiny().model
    attached = Attached(make_shell(model), [trained(model)])
    attached.active = "made"
    found = {}
    for factor in (0, 0.5, 1, 2):
        attached.factor = factor
        found[factor] = logits(attached.shell)
    assert torch.equal(found[0], logits(model))
    distances = [float((found[f] - found[0]).norm()) for f in (0.5, 1, 2)]
    assert 0 < distances[0] < distances[1] < distances[2]
    attached.factor = 1
    assert torch.equal(logits(attached.shell), found[1])


@pytest.mark.parametrize("factor", [-0.1, 2.01, float("nan"), float("inf"), "1", None, True])
def test_factors_out_of_bounds(tiny: Tiny, factor: object) -> None:
    attached = Attached(make_shell(tiny().model))
    with pytest.raises(BadInput, match="factor"):
        attached.factor = factor  # type: ignore[assignment]
    assert attached.factor == 1


def test_several_are_switched_without_touching_a_weight(tiny: Tiny) -> None:
    model = tiny().model
    before = weights_of(model)
    one, two = trained(model, name="one"), trained(model, ("q_proj", "up_proj"), rank=2, seed=7, name="two")
    attached = Attached(make_shell(model), [one, two])
    found = []
    for name in ("one", "two", None, "one", "two"):
        attached.active = name
        found.append(logits(attached.shell))
    assert torch.equal(found[0], found[3])
    assert torch.equal(found[1], found[4])
    assert torch.equal(found[2], logits(model))
    assert not torch.equal(found[0], found[1])
    assert unchanged(model, before)
    assert attached.active == "two"
    with attached.using("one", 0.5):
        assert (attached.active, attached.factor) == ("one", 0.5)
    assert (attached.active, attached.factor) == ("two", 1)


def test_taking_off_gives_the_very_modules_back(tiny: Tiny) -> None:
    model = tiny().model
    shell = make_shell(model)
    modules = dict(shell.named_modules())
    attached = Attached(shell, [trained(model, name="one"), trained(model, ("q_proj",), name="two", seed=2)])
    attached.active = "one"
    attached.remove("one")
    assert attached.active is None
    assert sum(isinstance(m, LoraLinear) for m in shell.modules()) == 2  # those of "two"
    assert torch.equal(logits(shell), logits(model))
    assert attached.detach() is shell
    now = dict(shell.named_modules())
    assert now.keys() == modules.keys()
    assert all(now[name] is modules[name] for name in modules)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in shell.modules())
    assert not any(isinstance(m, LoraLinear) for m in model.modules())


def test_what_does_not_fit_is_refused_and_leaves_nothing(tiny: Tiny) -> None:
    model = tiny().model
    attached = Attached(make_shell(model), [trained(model)])
    count = sum(1 for _ in attached.shell.modules())
    with pytest.raises(ModelError, match="not in LlamaForCausalLM"):
        attached.add(trained(tiny("gpt2").model, GPT2, name="gpt2"))
    with pytest.raises(BadInput, match="already"):
        attached.add(trained(model))
    with pytest.raises(NotFound, match="'made'"):
        attached.active = "other"
    with pytest.raises(NotFound):
        attached.remove("other")
    with pytest.raises(ModelError, match="already"):
        Attached(attached.shell)
    assert sum(1 for _ in attached.shell.modules()) == count
    assert list(attached.adapters) == ["made"]


@pytest.mark.parametrize("names", [ALL, ("q_proj", "v_proj"), ("gate_proj", "lm_head")])
def test_the_fast_path_computes_the_same(tiny: Tiny, names: tuple[str, ...]) -> None:
    model = tiny().model
    attached = Attached(make_shell(model), [trained(model, names), trained(model, ALL, name="other", seed=5)])
    assert why_not(attached.shell) == ""
    base = steps(model)
    assert torch.equal(steps(attached.shell)[5:], steps(attached.shell)[5:])
    for name, factor in (("made", 1.0), ("made", 2.0), ("other", 0.5)):
        with attached.using(name, factor) as shell:
            assert (steps(shell) - logits(shell)).abs().max() < 2e-4 * logits(shell).abs().max()
            assert (steps(shell) - base).abs().max() > 0.01
    assert (steps(attached.shell) - base).abs().max() < 1e-4


def test_a_pass_made_before_sees_switches_and_factors(tiny: Tiny) -> None:
    model = tiny().model
    attached = Attached(make_shell(model), [trained(model, ALL)])
    run = LlamaPass(attached.shell, 64)

    def one(name: str | None, factor: float = 1) -> Tensor:
        run.forget()
        with attached.using(name, factor), torch.inference_mode():
            return torch.cat([run.rows([token], i).logits for i, token in enumerate(IDS)])

    base, on, half = one(None), one("made"), one("made", 0.5)
    assert torch.equal(one(None), base)
    assert torch.equal(one("made"), on)
    assert (on - half).abs().max() > 0.01
    attached.add(trained(model, ("q_proj",), name="late", seed=11))
    assert (one("late") - base).abs().max() > 0.01
    assert torch.equal(one("made"), on)
    attached.remove("made")
    assert torch.equal(one(None), base)


def test_bf16_keeps_fp32_factors(tiny: Tiny) -> None:
    model = tiny(dtype="bfloat16").model
    adapter = trained(model)
    with Attached(make_shell(model), [adapter]).using("made") as shell:
        name = next(iter(adapter.tensors))
        wrapped = shell.get_submodule(name)
        x = exact(4, 32, 1).bfloat16()
        y = model.get_submodule(name)(x).float() + x.float() @ adapter.delta(name).t()
        assert wrapped(x).dtype == torch.bfloat16
        assert (wrapped(x).float() - y).abs().max() <= y.abs().max() * 2**-8
        assert wrapped.pairs["made"][0].a.dtype == torch.float32
        slow, fast = logits(shell).float(), steps(shell)
        assert (slow - fast).norm() < 0.05 * slow.norm()  # bf16 sums in another order


@pytest.mark.parametrize("bits", [4, 8])
def test_beside_packed_weights(tiny: Tiny, bits: Literal[4, 8]) -> None:
    model = tiny().model
    packed = pack_shell(model, bits, 32).shell
    base = steps(packed)
    adapter = trained(model, ALL)
    attached = Attached(packed, [adapter])
    assert torch.equal(steps(packed), base)
    with attached.using("made") as shell:
        wrapped = shell.get_submodule("model.layers.0.self_attn.q_proj")
        assert isinstance(wrapped.base, PackedLinear)
        x = exact(1, 32, 3)
        wanted = wrapped.base(x) + x @ adapter.delta("model.layers.0.self_attn.q_proj").t()
        assert torch.allclose(wrapped(x), wanted, atol=1e-5)
        assert why_not(shell) == ""
        assert (steps(shell) - logits(shell)).abs().max() < 0.1 * logits(shell).abs().max()
        assert (steps(shell) - base).abs().max() > 0.1
    attached.detach()
    assert torch.equal(steps(packed), base)
