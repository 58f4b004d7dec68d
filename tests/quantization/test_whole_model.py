"""Whole models: what is quantized, what is left and why, ties, Conv1D, mixed precision, the two ways to calibrate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from calibrated import end
from test_calibration import windows
from torch import nn

from lab.calibration.gather import calibrating
from lab.errors import BadInput, NotFound
from lab.models.linear import in_features, linear_names, out_in
from lab.models.shell import make_shell
from lab.quantization.awq import Awq
from lab.quantization.gptq import Gptq
from lab.quantization.grid import Grid
from lab.quantization.method import Method
from lab.quantization.nearest import Nearest
from lab.quantization.whole_model import ModuleResult, quantize_model, quantizing
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
GRID = Grid(4, "absmax", 32)
METHODS: tuple[Method, ...] = (Nearest(GRID), Gptq(GRID), Awq(GRID))


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=torch.tensor([windows()[0]])).logits
    return found


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "qwen2", "mixtral"])
def test_every_module_is_done_and_the_model_is_not_changed(tiny: Tiny, kind: str, method: Method) -> None:
    model = tiny(kind).model
    before = {name: p.clone() for name, p in model.named_parameters()}
    want = logits(model)
    whole = quantize_model(model, method, windows=windows(), keep_codes=True)
    names = linear_names(model, head=False)
    assert sorted(m.name for m in whole.modules) == sorted(names)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    assert torch.equal(logits(model), want)
    assert torch.isfinite(logits(whole.shell)).all()
    assert not torch.equal(logits(whole.shell), want)
    for made in whole.modules:
        assert isinstance(made, ModuleResult)
        assert made.quantized is not None
        assert torch.equal(out_in(whole.shell.get_submodule(made.name)), made.quantized.dequantize())
        assert 0 < made.weight_error < 0.5
        assert made.output_error is not None
        assert 0 < made.output_error < 0.5
    cover = whole.coverage
    assert cover.quantized == sum(out_in(model.get_submodule(n)).numel() for n in names)
    assert cover.parameters == sum(p.numel() for p in model.parameters())
    assert cover.quantized + sum(s.parameters for s in cover.skipped) == cover.parameters
    assert all(s.reason for s in cover.skipped)
    assert cover.bytes < cover.dense_bytes
    assert whole.bits_per_weight == pytest.approx(4.5, abs=1.4)  # AWQ's scales beside the codes
    if kind == "mixtral":
        assert any("experts" in s.name and "3 dimensions" in s.reason for s in cover.skipped)


def test_a_tied_head_is_untied_on_the_shell_alone(tiny: Tiny) -> None:
    """T1."""
    model: Any = tiny("llama").model
    embedding = model.model.embed_tokens.weight
    assert model.lm_head.weight is embedding
    plain = quantize_model(model, Nearest(GRID))
    assert plain.shell.lm_head.weight is embedding
    assert next(s.reason for s in plain.coverage.skipped).startswith("an embedding, tied to the head")
    values = embedding.clone()
    for method in METHODS:
        whole = quantize_model(model, {"lm_head": method}, windows=windows())
        shell: Any = whole.shell
        assert torch.equal(embedding, values)
        assert shell.model.embed_tokens.weight.data_ptr() == embedding.data_ptr()
        assert not torch.equal(shell.lm_head.weight, embedding)
        assert whole.coverage.untied
        assert whole.coverage.parameters == plain.coverage.parameters + embedding.numel()
        # codes beside the embedding, not a second dense matrix
        extra = whole.coverage.bytes - whole.coverage.dense_bytes
        assert extra == whole.modules[0].storage.bytes < embedding.numel() * 4 / 6
        # transformers would tie it again from the config
        shell.tie_weights()
        assert not torch.equal(shell.lm_head.weight, shell.model.embed_tokens.weight)
    # reset: a new shell of the model has the tie
    again: Any = make_shell(model)
    assert again.lm_head.weight.data_ptr() == again.model.embed_tokens.weight.data_ptr()
    assert model.config.tie_word_embeddings


def test_the_head_is_calibrated_on_what_it_reads(tiny: Tiny) -> None:
    model = tiny("qwen2").model
    inputs = end(calibrating(model, windows(), ["lm_head"]))["lm_head"]
    whole = quantize_model(model, {"lm_head": Gptq(GRID)}, windows=windows(), keep_codes=True)
    alone = finished(Gptq(GRID).quantize(model.lm_head.weight, inputs))
    assert whole.modules[0].quantized is not None
    assert torch.equal(whole.modules[0].quantized.dequantize(), alone.dequantize())
    assert quantize_model(model, Nearest(GRID), head=True).coverage.quantized > whole.coverage.quantized


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_conv1d_is_a_linear_module_turned_round(tiny: Tiny, method: Method) -> None:
    """C1: GPT-2's matrix, (in, out), gives what an nn.Linear with the transposed weight gives."""
    model: Any = tiny("gpt2").model
    name = "transformer.h.0.attn.c_attn"
    conv = model.get_submodule(name)
    assert tuple(conv.weight.shape) == (32, 96)
    assert in_features(conv) == 32
    turned = nn.Linear(32, 96)
    turned.weight, turned.bias = nn.Parameter(conv.weight.detach().t().contiguous()), conv.bias
    other = make_shell(model)
    other.set_submodule(name, turned)
    a, b = (quantize_model(m, {name: method}, windows=windows()) for m in (model, other))
    got: Any = a.shell.get_submodule(name).weight
    want: Any = b.shell.get_submodule(name).weight
    assert got.shape == (32, 96)
    assert torch.allclose(got, want.t(), atol=1e-6)
    assert a.modules[0].storage == b.modules[0].storage
    # the mutation: groups along the outputs
    wrong = finished(Nearest(GRID).quantize(conv.weight.detach())).dequantize()
    assert not torch.allclose(wrong, want.t(), atol=1e-6)


def test_mixed_precision_counts_each_module(tiny: Tiny) -> None:
    model = tiny("llama").model
    at = "model.layers.0."
    methods: dict[str, Method] = {
        at + "mlp.down_proj": Nearest(Grid(8, "absmax", "row")),
        at + "mlp.up_proj": Gptq(Grid(2, "asymmetric", 16)),
        "model.layers.1.self_attn.q_proj": Awq(Grid(3, "absmax", 32)),
    }
    whole = quantize_model(model, methods, windows=windows())
    bits = {m.name: m.storage.bits_per_weight for m in whole.modules}
    assert bits[at + "mlp.down_proj"] == 8 + 16 / 64
    assert bits[at + "mlp.up_proj"] == 2 + 18 / 16
    assert {m.method for m in whole.modules} == {"nearest", "gptq", "awq"}
    weights = sum(m.storage.weights for m in whole.modules)
    assert whole.bits_per_weight == sum(m.storage.bits for m in whole.modules) / weights
    not_chosen = [s.name for s in whole.coverage.skipped if s.reason == "not chosen"]
    assert len(not_chosen) == 11
    assert at + "mlp.gate_proj.weight" in not_chosen


def test_sequential_inputs_are_those_of_quantized_layers(tiny: Tiny) -> None:
    model: Any = tiny("llama").model
    name, texts = "model.layers.1.self_attn.q_proj", windows()
    method = Gptq(Grid(2, "asymmetric", 16))
    first = {n: method for n in linear_names(model, head=False) if ".layers.0." in n}
    made = {
        way: quantize_model(model, {**first, name: method}, windows=texts, calibration=way)  # type: ignore[arg-type]
        for way in ("one_shot", "sequential")
    }
    dense = end(calibrating(model, texts, [name]))[name]
    quantized = end(calibrating(made["sequential"].shell, texts, [name]))[name]
    weight = model.get_submodule(name).weight
    for way, inputs, other in (("one_shot", dense, quantized), ("sequential", quantized, dense)):
        got: Any = made[way].shell.get_submodule(name).weight
        assert torch.equal(got, finished(method.quantize(weight, inputs)).dequantize())
        # the mutation: the other way's inputs
        assert not torch.equal(got, finished(method.quantize(weight, other)).dequantize())
    assert made["sequential"].calibration == "sequential"
    assert made["sequential"].calibration_tokens == sum(map(len, texts))


def test_rounding_needs_no_text(tiny: Tiny) -> None:
    whole = quantize_model(tiny("llama").model, Nearest(GRID))
    assert whole.calibration == "none"
    assert all(m.output_error is None for m in whole.modules)
    with_text = quantize_model(tiny("llama").model, Nearest(GRID), windows=windows())
    assert all(m.output_error is not None for m in with_text.modules)
    assert torch.equal(logits(whole.shell), logits(with_text.shell))


def test_progress_names_each_module_and_holds_no_context(tiny: Tiny) -> None:
    model = tiny("llama").model
    steps = quantizing(model, Awq(GRID), windows=windows())
    seen, shares, doing = [], [], set()
    for step in steps:
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        shares.append(step.share)
        doing.add(step.doing)
        if step.finished is not None:
            seen.append(step.finished.name)
    assert len(seen) == 14
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert doing == {"reading", "searching", "quantizing"}


def test_two_runs_in_turns_equal_each_alone(tiny: Tiny) -> None:
    model = tiny("llama").model
    alone = [logits(quantize_model(model, m, windows=windows()).shell) for m in (METHODS[1], METHODS[2])]
    runs: list[Any] = [quantizing(model, m, windows=windows()) for m in (METHODS[1], METHODS[2])]
    done: dict[int, Any] = {}
    while len(done) < 2:
        for number, run in enumerate(runs):
            if number not in done:
                try:
                    next(run)
                except StopIteration as stop:
                    done[number] = stop.value
    assert all(torch.equal(logits(done[i].shell), alone[i]) for i in (0, 1))


def test_what_cannot_be_done_is_refused_at_once(tiny: Tiny) -> None:
    model = tiny("llama").model
    with pytest.raises(BadInput, match=r"model\.layers\.0\.self_attn\.q_proj: Groups of 64 do not divide rows of 32"):
        quantizing(model, Nearest(Grid(4, "absmax", 64)))
    with pytest.raises(BadInput, match="GPTQ needs calibration text"):
        quantizing(model, Gptq(GRID))
    with pytest.raises(BadInput, match="There is no calibration 'twice'"):
        quantizing(model, Nearest(GRID), calibration="twice")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="No module was chosen"):
        quantizing(model, {})
    with pytest.raises(NotFound, match=r"layers\.7"):
        quantizing(model, {"model.layers.7.mlp.up_proj": Nearest(GRID)})
