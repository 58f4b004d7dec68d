"""A few tokens in one pass: every row equals the plain forward of its own path; what is not wanted leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from lab.decoding import cache_layout
from lab.decoding.choose_pass import choose_pass
from lab.decoding.half_pack import packed_weight, packing_pays
from lab.decoding.passes import Pass
from lab.decoding.products import linear_rows
from lab.decoding.tree import Tree
from lab.errors import ModelError
from lab.models.shell import make_shell

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PROMPT = [5, 9, 17, 33, 60, 7, 12, 80, 101, 4]


def started(loaded: LoadedModel, prompt: list[int], *, fast: bool | None = None) -> Pass:
    runner = choose_pass(loaded.model, len(prompt) + 4, layers=(), fast=fast, mistake="nothing")
    with torch.inference_mode():
        runner(prompt, 0, last=False, attention=False)
    return runner


def plain(loaded: LoadedModel, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        return loaded.model(torch.tensor([ids])).logits[0].float()


def random_tree(seed: int, rows: int) -> Tree:
    draw = random.Random(seed)
    return Tree(tuple(draw.randrange(-1, row) for row in range(rows)))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 17])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "mistral", "gpt2", "mixtral"])
def test_a_chain_equals_the_plain_forward(tiny: Tiny, kind: str, rows: int) -> None:
    loaded = tiny(kind)
    ids = [(3 * i + 11) % 300 for i in range(rows)]
    runner = started(loaded, PROMPT)
    with torch.inference_mode():
        got = runner.rows(ids, len(PROMPT))
    expected = plain(loaded, [*PROMPT, *ids])[-rows:]
    assert torch.allclose(got.logits, expected, atol=1e-4)
    assert not torch.allclose(plain(loaded, [*PROMPT[:-1], 3, *ids])[-rows:], expected, atol=1e-3)  # the mutation
    head = loaded.model.get_output_embeddings()
    assert got.features is not None
    with torch.inference_mode():
        shown = head(got.features).float()  # type: ignore[operator]
    cap = getattr(loaded.model.config, "final_logit_softcapping", None)
    if cap:
        shown = torch.tanh(shown / cap) * cap
    assert torch.allclose(shown, expected, atol=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mixtral"])
def test_each_path_of_a_tree_equals_plain_text(tiny: Tiny, kind: str, seed: int) -> None:
    loaded = tiny(kind)
    tree = random_tree(seed, 3 + seed)
    ids = [(7 * i + 20 + seed) % 300 for i in range(len(tree.parents))]
    runner = started(loaded, PROMPT)
    with torch.inference_mode():
        got = runner.rows(ids, len(PROMPT), tree=tree).logits
    for row in range(len(ids)):
        path = [*PROMPT, *(ids[i] for i in tree.path(row))]
        assert torch.allclose(got[row], plain(loaded, path)[-1], atol=1e-4), (tree, row)


def test_a_tree_taken_for_a_chain_differs(tiny: Tiny) -> None:
    loaded, tree, ids = tiny("llama"), Tree((-1, -1, 0)), [20, 30, 40]
    runner = started(loaded, PROMPT)
    with torch.inference_mode():
        chain = runner.rows(ids, len(PROMPT)).logits
    assert not torch.allclose(chain[2], plain(loaded, [*PROMPT, *(ids[i] for i in tree.path(2))])[-1], atol=1e-3)


def test_a_tree_does_not_go_through_a_window(tiny: Tiny) -> None:
    runner = started(tiny("gemma3"), PROMPT)
    with pytest.raises(ModelError, match="tree"), torch.inference_mode():
        runner.rows([1, 2, 3], len(PROMPT), tree=Tree((-1, -1, 0)))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_first_layers_give_the_logit_lens(tiny: Tiny, layers: int, rows: int) -> None:
    loaded, ids = tiny("llama"), [20, 30, 40][:rows]
    runner = started(loaded, PROMPT)
    with torch.inference_mode():
        got = runner.rows(ids, len(PROMPT), layers=layers).logits
        shell = make_shell(loaded.model)  # asking for the states leaves hooks
        states = shell(torch.tensor([[*PROMPT, *ids]]), output_hidden_states=True).hidden_states
        # the last of the states has gone through the norm already
        lens = shell.model.norm(states[layers]) if layers < 2 else states[layers]
        expected = shell.lm_head(lens)[0, -rows:]
    assert torch.allclose(got, expected, atol=1e-4)
    lengths = cache_layout.stored_lengths(runner.cache)
    assert lengths == (len(PROMPT) + rows,) * layers + (len(PROMPT),) * (2 - layers)


@pytest.mark.parametrize("length", [3, 7, 8, 9, 16])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "gemma3", "mistral", "qwen3"])
@pytest.mark.parametrize("kept", [0, 1, 3])
def test_what_is_taken_back_leaves_no_trace(tiny: Tiny, kind: str, length: int, kept: int) -> None:
    loaded, prompt, ids = tiny(kind), (PROMPT * 2)[:length], [20, 30, 40, 50]
    runner = started(loaded, prompt)
    with torch.inference_mode():
        since = cache_layout.mark(runner.cache)
        runner.rows(ids, length)
        cache_layout.keep(runner.cache, since, range(kept))
        again = runner.rows([77, 78], length + kept).logits
    expected = plain(loaded, [*prompt, *ids[:kept], 77, 78])[-2:]
    assert torch.allclose(again, expected, atol=1e-4)


def test_what_is_not_taken_back_shows(tiny: Tiny) -> None:
    loaded = tiny("llama")
    runner = started(loaded, PROMPT)
    with torch.inference_mode():
        runner.rows([20, 30], len(PROMPT))
        again = runner.rows([77], len(PROMPT)).logits
    assert not torch.allclose(again, plain(loaded, [*PROMPT, 77])[-1:], atol=1e-3)


def test_one_branch_of_a_tree_stays(tiny: Tiny) -> None:
    loaded, tree, ids = tiny("llama"), Tree((-1, 0, 0, 2, 1)), [20, 30, 40, 50, 60]
    for row in range(5):
        path = tree.path(row)
        runner = started(loaded, PROMPT)
        with torch.inference_mode():
            since = cache_layout.mark(runner.cache)
            runner.rows(ids, len(PROMPT), tree=tree)
            cache_layout.keep(runner.cache, since, path)
            again = runner.rows([77], len(PROMPT) + len(path)).logits
        expected = plain(loaded, [*PROMPT, *(ids[i] for i in path), 77])[-1:]
        assert torch.allclose(again, expected, atol=1e-4)


def test_more_rows_than_a_window_cannot_be_taken_back(tiny: Tiny) -> None:
    runner = started(tiny("mistral"), PROMPT)
    with torch.inference_mode():
        since = cache_layout.mark(runner.cache)
        runner.rows(list(range(20, 30)), len(PROMPT))
        with pytest.raises(ModelError, match="sliding window"):
            cache_layout.keep(runner.cache, since, range(2))


def test_a_pass_grows_beyond_its_room(tiny: Tiny) -> None:
    loaded = tiny("llama")
    runner = choose_pass(loaded.model, 4, layers=(), fast=True, mistake="nothing")
    with torch.inference_mode():
        runner(PROMPT[:3], 0, last=False, attention=False)
        got = runner.rows(PROMPT[3:5], 3).logits
    assert torch.allclose(got, plain(loaded, PROMPT[:5])[-2:], atol=1e-4)


@pytest.mark.parametrize("rows", [1, 2, 5, 40])
def test_bf16_rows_are_as_near_to_the_truth_as_bf16_arithmetic(tiny: Tiny, rows: int) -> None:
    """Nearer where the CPU has no bf16 products of its own; elsewhere rounding falls otherwise: over several texts."""
    import copy

    loaded = tiny("llama", dtype="bfloat16")
    truth = copy.deepcopy(loaded.model).float()
    ours = theirs = 0.0
    for text in range(8):
        ids = [(3 * i + 11 + 7 * text) % 300 for i in range(rows)]
        runner = started(loaded, PROMPT)
        with torch.inference_mode():
            got = runner.rows(ids, len(PROMPT)).logits
            exact = truth(torch.tensor([[*PROMPT, *ids]])).logits[0, -rows:]
        assert torch.allclose(got, exact, atol=0.1 * float(exact.abs().max()))
        ours += float((got - exact).square().sum())
        theirs += float((plain(loaded, [*PROMPT, *ids])[-rows:] - exact).square().sum())
    assert ours <= 1.5**2 * theirs


def test_a_changed_weight_is_packed_anew() -> None:
    linear = torch.nn.Linear(16, 8, bias=True).to(torch.bfloat16).requires_grad_(False)
    x = torch.ones(3, 16, dtype=torch.bfloat16)
    before = linear_rows(linear, x)
    assert torch.allclose(before.float(), linear(x).float(), rtol=0.02, atol=0.02)
    linear.weight.mul_(2)
    after = linear_rows(linear, x)
    assert torch.allclose(after.float(), linear(x).float(), rtol=0.02, atol=0.02)
    assert not torch.allclose(after, before)


def test_weights_beyond_fp16_are_not_packed() -> None:
    weight = torch.full((8, 16), 1e6, dtype=torch.bfloat16)
    assert packed_weight(weight) is None
    assert (packed_weight(weight / 1e6) is not None) == packing_pays()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 16, 17])
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_through_a_module_equal_its_own_forward(rows: int, bias: bool) -> None:
    linear = torch.nn.Linear(24, 40, bias=bias).requires_grad_(False)
    x = torch.randn(1, rows, 24, generator=torch.Generator().manual_seed(rows))
    assert torch.allclose(linear_rows(linear, x), linear(x), atol=1e-5)
    handle = linear.register_forward_hook(lambda *_: torch.zeros(1, rows, 40))
    assert float(linear_rows(linear, x).abs().max()) == 0.0  # a hook is followed
    handle.remove()


def test_a_parent_must_come_before() -> None:
    with pytest.raises(ValueError, match="row 1 has the parent 1"):
        Tree((-1, 1))
