"""Whole models: what is pruned, what is left and why, ties, Conv1D, mixed and global methods, two ways to calibrate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from pruning_layers import logits, windows
from torch import nn

from lab.calibration.gather import calibrating
from lab.errors import BadInput, NotFound
from lab.models.linear import in_features, linear_names, out_in
from lab.models.shell import make_shell
from lab.pruning.given import Given
from lab.pruning.global_magnitude import global_magnitude
from lab.pruning.magnitude import Magnitude
from lab.pruning.method import Method
from lab.pruning.nm import check_nm
from lab.pruning.pattern import Pattern
from lab.pruning.random import Random
from lab.pruning.sparsegpt import SparseGpt
from lab.pruning.wanda import Wanda
from lab.pruning.whole_model import GlobalMagnitude, prune_model, pruning
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
HALF, TWO_OF_FOUR = Pattern(0.5), Pattern(n=2, m=4)
METHODS: tuple[Method, ...] = (Random(HALF), Magnitude(HALF), Wanda(Pattern(0.5, "row")), SparseGpt(HALF))
ids = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)


@ids
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "qwen2", "mixtral"])
def test_every_module_is_done_and_the_model_is_not_changed(tiny: Tiny, kind: str, method: Method) -> None:
    model = tiny(kind).model
    before = {name: p.clone() for name, p in model.named_parameters()}
    want = logits(model)
    whole = prune_model(model, method, windows=windows())
    names = linear_names(model, head=False)
    assert sorted(m.name for m in whole.modules) == sorted(names)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    assert torch.equal(logits(model), want)
    assert torch.isfinite(logits(whole.shell)).all()
    assert not torch.equal(logits(whole.shell), want)
    masks = whole.masks()
    for made in whole.modules:
        weight = out_in(whole.shell.get_submodule(made.name))
        assert made.shape == tuple(weight.shape)
        assert torch.equal(weight != 0, masks[made.name])
        assert made.kept == int(masks[made.name].sum()) == made.weights // 2
        assert 0 < made.weight_error < 1.5
        assert made.output_error is not None
        assert made.output_error > 0
    cover = whole.coverage
    assert cover.chosen == sum(out_in(model.get_submodule(n)).numel() for n in names)
    assert cover.sparsity == 0.5
    assert cover.kept == cover.chosen // 2
    assert cover.parameters == sum(p.numel() for p in model.parameters())
    assert cover.chosen + sum(s.parameters for s in cover.skipped) == cover.parameters
    assert all(s.reason for s in cover.skipped)
    if kind == "mixtral":
        assert any("experts" in s.name and "3 dimensions" in s.reason for s in cover.skipped)


def test_a_tied_head_is_untied_on_the_shell_alone(tiny: Tiny) -> None:
    """T1."""
    model: Any = tiny("llama").model
    embedding = model.model.embed_tokens.weight
    assert model.lm_head.weight is embedding
    plain = prune_model(model, Magnitude(HALF))
    assert plain.shell.lm_head.weight is embedding
    assert not plain.coverage.untied
    assert next(s.reason for s in plain.coverage.skipped).startswith("an embedding, tied to the head")
    values = embedding.clone()
    for method in METHODS:
        whole = prune_model(model, {"lm_head": method}, windows=windows())
        shell: Any = whole.shell
        assert torch.equal(embedding, values)
        assert shell.model.embed_tokens.weight.data_ptr() == embedding.data_ptr()
        assert not torch.equal(shell.lm_head.weight, embedding)
        assert whole.coverage.untied
        assert whole.coverage.parameters == plain.coverage.parameters + embedding.numel()
        # transformers would tie it again from the config
        shell.tie_weights()
        assert not torch.equal(shell.lm_head.weight, shell.model.embed_tokens.weight)
    again: Any = make_shell(model)
    assert again.lm_head.weight.data_ptr() == again.model.embed_tokens.weight.data_ptr()
    assert model.config.tie_word_embeddings
    assert "lm_head" in prune_model(model, Magnitude(HALF), head=True).masks()


@pytest.mark.parametrize("pattern", [HALF, TWO_OF_FOUR], ids=lambda p: p.label)
def test_conv1d_is_a_linear_module_turned_round(tiny: Tiny, pattern: Pattern) -> None:
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
    for method in (Magnitude(pattern), Wanda(pattern if pattern.m else Pattern(0.5, "row")), SparseGpt(pattern)):
        a, b = (prune_model(m, {name: method}, windows=windows()) for m in (model, other))
        got: Any = a.shell.get_submodule(name).weight
        want: Any = b.shell.get_submodule(name).weight
        assert got.shape == (32, 96)
        assert torch.allclose(got, want.t(), atol=1e-6)
        assert torch.equal(a.masks()[name], b.masks()[name])
        assert a.modules[0].shape == (96, 32)
        if pattern.m:
            assert check_nm(a.masks()[name], 2, 4).valid
            # the mutation: groups along the outputs
            assert not check_nm(a.masks()[name].t(), 2, 4).valid


def test_each_module_may_have_its_own_method(tiny: Tiny) -> None:
    model = tiny("llama").model
    at = "model.layers.0."
    mask = torch.eye(32).bool()
    methods: dict[str, Method] = {
        at + "mlp.down_proj": Magnitude(Pattern(0.25)),
        at + "mlp.up_proj": SparseGpt(TWO_OF_FOUR),
        at + "self_attn.q_proj": Given(mask),
        "model.layers.1.self_attn.q_proj": Wanda(Pattern(0.75, "row")),
    }
    whole = prune_model(model, methods, windows=windows())
    found = {m.name: m for m in whole.modules}
    assert [found[name].sparsity for name in methods] == [0.25, 0.5, 1 - 1 / 32, 0.75]
    assert torch.equal(whole.masks()[at + "self_attn.q_proj"], mask)
    assert {m.method for m in whole.modules} == {"magnitude", "sparsegpt", "given", "wanda"}
    assert sum(s.reason == "not chosen" for s in whole.coverage.skipped) == 10
    with pytest.raises(BadInput, match=r"k_proj: A mask of \(32, 32\) torch.bool does not fit a weight of \(16, 32\)"):
        prune_model(model, {at + "self_attn.k_proj": Given(mask)})


def test_one_threshold_for_the_model(tiny: Tiny) -> None:
    model = tiny("llama").model
    names = linear_names(model, head=False)
    whole = prune_model(model, GlobalMagnitude(0.4))
    want = finished(global_magnitude({n: out_in(model.get_submodule(n)) for n in names}, 0.4))
    assert {m.method for m in whole.modules} == {"global_magnitude"}
    masks = whole.masks()
    assert all(torch.equal(masks[name], want.masks[name]) for name in names)
    assert whole.coverage.chosen - whole.coverage.kept == round(0.4 * whole.coverage.chosen)
    # the mutation: a threshold for each matrix
    each = prune_model(model, Magnitude(Pattern(0.4))).masks()
    assert any(not torch.equal(masks[name], each[name]) for name in names)
    two = prune_model(model, GlobalMagnitude(0.4), names=names[:2], windows=windows(), keep_masks=False)
    assert len(two.modules) == 2
    assert two.masks() == {}
    assert all(m.output_error is not None for m in two.modules)
    with pytest.raises(BadInput, match=r"A sparsity of 1\.5"):
        GlobalMagnitude(1.5)


def test_sequential_inputs_are_those_of_pruned_layers(tiny: Tiny) -> None:
    model: Any = tiny("llama").model
    name, texts = "model.layers.1.self_attn.q_proj", windows()
    method = SparseGpt(Pattern(0.7))
    first = {n: method for n in linear_names(model, head=False) if ".layers.0." in n}
    made = {
        way: prune_model(model, {**first, name: method}, windows=texts, calibration=way)
        for way in ("one_shot", "sequential")
    }
    dense = finished(calibrating(model, texts, [name]))[name]
    pruned = finished(calibrating(made["sequential"].shell, texts, [name]))[name]
    weight = model.get_submodule(name).weight
    for way, inputs, other in (("one_shot", dense, pruned), ("sequential", pruned, dense)):
        got: Any = made[way].shell.get_submodule(name).weight
        assert torch.equal(got, finished(method.prune(weight, inputs)).values)
        # the mutation: the other way's inputs
        assert not torch.equal(got, finished(method.prune(weight, other)).values)
    assert made["sequential"].calibration == "sequential"
    assert made["sequential"].calibration_tokens == sum(map(len, texts))


def test_progress_names_each_module_and_holds_no_context(tiny: Tiny) -> None:
    model = tiny("llama").model
    seen, shares, doing = [], [], set()
    for step in pruning(model, SparseGpt(TWO_OF_FOUR), windows=windows()):
        assert torch.is_grad_enabled()
        shares.append(step.share)
        doing.add(step.doing)
        if step.finished is not None:
            seen.append(step.finished.name)
    assert sorted(seen) == sorted(linear_names(model, head=False))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert doing == {"reading", "pruning"}


def test_two_runs_in_turns_equal_each_alone(tiny: Tiny) -> None:
    model = tiny("llama").model
    chosen = (METHODS[2], METHODS[3])
    alone = [logits(prune_model(model, m, windows=windows()).shell) for m in chosen]
    runs: list[Any] = [pruning(model, m, windows=windows()) for m in chosen]
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
    narrow = tiny("llama", intermediate_size=62).model
    with pytest.raises(BadInput, match=r"model\.layers\.0\.mlp\.down_proj: 2:4 does not fit rows of 62"):
        pruning(narrow, Magnitude(TWO_OF_FOUR))
    with pytest.raises(BadInput, match="SparseGPT needs calibration text"):
        pruning(model, SparseGpt())
    with pytest.raises(BadInput, match="There is no calibration 'twice'"):
        pruning(model, Magnitude(HALF), calibration="twice")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="No module was chosen to be pruned"):
        pruning(model, {})
    with pytest.raises(NotFound, match=r"layers\.7"):
        pruning(model, {"model.layers.7.mlp.up_proj": Magnitude(HALF)})
