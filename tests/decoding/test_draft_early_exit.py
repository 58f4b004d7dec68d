"""The first layers as draft: the logit lens, a shared cache left as it was, and the loop."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from lab.decoding import cache_layout
from lab.decoding.choose_pass import choose_pass
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Sight
from lab.decoding.drafts.early_exit import EarlyExitDraft
from lab.decoding.passes import Pass
from lab.decoding.sampling import Sampling
from lab.decoding.speculative.loop import Round, plain, speculate
from lab.errors import BadInput, ModelError
from lab.models.shell import make_shell

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
LAYERS = 4
PROMPT = [5, 9, 33, 70, 101, 17]
SAMPLED = Distribution(Sampling(do_sample=True))


def deep(tiny: Tiny) -> Any:
    return tiny("llama", num_hidden_layers=LAYERS).model


def ready(model: Any, ids: list[int]) -> Sight:
    """A target that has read all of `ids` but the last, as between two rounds."""
    runner = choose_pass(model, 64, layers=(), fast=None, mistake="nothing")
    with torch.inference_mode():
        runner(ids[:-1], 0, last=False, attention=False)
    return Sight(ids=list(ids), target=runner, generator=torch.Generator().manual_seed(3))


def propose(draft: EarlyExitDraft, sight: Sight, count: int, rules: Distribution) -> Any:
    with torch.inference_mode():
        return draft.propose(sight, count, rules)


def lens(model: Any, ids: list[int], layers: int, *, norm: bool = True) -> Tensor:
    """(position, vocab): the head on the hidden states after `layers` layers, by transformers alone."""
    states: list[Tensor] = []
    hook = model.model.layers[layers - 1].register_forward_hook(
        lambda *call: states.append(call[2] if isinstance(call[2], Tensor) else call[2][0])
    )
    try:
        with torch.inference_mode():
            model(torch.tensor([ids]), use_cache=False)
            hidden = model.model.norm(states[0]) if norm else states[0]
            logits: Tensor = model.lm_head(hidden)[0]
    finally:
        hook.remove()
    return logits


@pytest.mark.parametrize("layers", range(1, LAYERS + 1))
def test_the_draft_says_what_the_head_reads_after_its_layers(tiny: Tiny, layers: int) -> None:
    shell = make_shell(deep(tiny))  # the hook of the oracle stays off the shared model
    for _ in range(2):  # nothing is left on from the first time
        sight = ready(deep(tiny), PROMPT)
        found = propose(EarlyExitDraft(layers), sight, 4, SAMPLED)
        whole = [*PROMPT, *found.token_ids]
        expected = torch.softmax(lens(shell, whole, layers), dim=-1)[len(PROMPT) - 1 : -1]
        torch.testing.assert_close(torch.stack(found.q), expected, rtol=1e-4, atol=1e-6)
    without_norm = torch.softmax(lens(shell, whole, layers, norm=False), dim=-1)[len(PROMPT) - 1 : -1]
    assert (torch.stack(found.q) - without_norm).abs().max() > 1e-2
    if layers < LAYERS:
        other = torch.softmax(lens(shell, whole, layers + 1), dim=-1)[len(PROMPT) - 1 : -1]
        assert (torch.stack(found.q) - other).abs().max() > 1e-2


def state(runner: Pass) -> tuple[tuple[int, ...], list[Tensor]]:
    held = cache_layout.layer_tensors(runner.cache)
    tensors = [t.clone() for layer in held for t in (layer.keys, layer.values) if t is not None]
    return cache_layout.stored_lengths(runner.cache), tensors


def same(one: tuple[tuple[int, ...], list[Tensor]], other: tuple[tuple[int, ...], list[Tensor]]) -> bool:
    return one[0] == other[0] and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))


class _Breaks:
    """A pass that fails at its third row."""

    def __init__(self, runner: Pass) -> None:
        self._runner, self.left = runner, 2

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def rows(self, *args: Any, **options: Any) -> Any:
        if not self.left:
            raise RuntimeError("out of memory")
        self.left -= 1
        return self._runner.rows(*args, **options)


def test_the_target_is_left_as_it_was_even_after_an_error(tiny: Tiny) -> None:
    sight = ready(deep(tiny), PROMPT)
    before = state(sight.target)
    draft = EarlyExitDraft(2)
    assert len(propose(draft, sight, 5, SAMPLED).token_ids) == 5
    assert same(state(sight.target), before)
    whole, sight.target = sight.target, _Breaks(sight.target)  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="memory"):
        propose(draft, sight, 5, SAMPLED)
    assert same(state(whole), before)
    assert sight.ids == PROMPT
    with torch.inference_mode():
        whole.rows((7,), len(PROMPT) - 1, layers=2)  # what the draft takes back would be seen
    assert not same(state(whole), before)


def run(loop: Generator[Any, None, Any]) -> tuple[list[Any], Any]:
    items = []
    while True:
        try:
            items.append(next(loop))
        except StopIteration as stop:
            return items, stop.value


@pytest.mark.parametrize("layers", range(1, LAYERS + 1))
@pytest.mark.parametrize("gamma", [1, 4])
def test_greedy_text_is_plain_greedy(tiny: Tiny, layers: int, gamma: int) -> None:
    model, new = deep(tiny), 20
    expected = run(plain(model, PROMPT, max_new_tokens=new))[1]
    items, end = run(speculate(model, PROMPT, EarlyExitDraft(layers), max_new_tokens=new, gamma=gamma))
    assert end.token_ids == expected
    rounds = [r for r in items if isinstance(r, Round)]
    if layers == LAYERS:  # the draft is the whole model
        assert all(len(r.path) == len(r.proposal.token_ids) for r in rounds)
        assert len(rounds) == -(-(new - 1) // (gamma + 1))
    else:
        assert any(len(r.path) < len(r.proposal.token_ids) for r in rounds)


def test_sampled_all_layers_are_accepted(tiny: Tiny) -> None:
    items, end = run(
        speculate(deep(tiny), PROMPT, EarlyExitDraft(LAYERS), max_new_tokens=30, distribution=SAMPLED, gamma=4)
    )
    rounds = [r for r in items if isinstance(r, Round)]
    assert len(end.token_ids) == 30
    for done in rounds:
        judged = [row for row in done.verdict.rows if row.kind != "unjudged"]
        assert all(row.alpha > 1 - 1e-4 for row in judged)


def test_it_stops_at_an_end_token(tiny: Tiny) -> None:
    model = deep(tiny)
    free = propose(EarlyExitDraft(LAYERS), ready(model, PROMPT), 6, Distribution(Sampling()))
    end = free.token_ids[2]
    first = free.token_ids.index(end)
    cut = propose(EarlyExitDraft(LAYERS), ready(model, PROMPT), 6, Distribution(Sampling(), end_token_ids=(end,)))
    assert cut.token_ids == free.token_ids[: first + 1]
    assert cut.q == (None,) * (first + 1)


def test_logits_that_are_no_numbers_propose_nothing(tiny: Tiny) -> None:
    from transformers import LlamaForCausalLM

    broken = LlamaForCausalLM(deep(tiny).config).eval()
    with torch.no_grad():
        broken.model.norm.weight.fill_(torch.nan)
    sight = ready(broken, PROMPT)
    assert propose(EarlyExitDraft(2), sight, 3, SAMPLED).token_ids == ()
    assert set(cache_layout.stored_lengths(sight.target.cache)) == {len(PROMPT) - 1}


def test_layers_that_there_are_not_are_refused(tiny: Tiny) -> None:
    with pytest.raises(BadInput, match="0 layers"):
        EarlyExitDraft(0)
    with pytest.raises(BadInput, match="first 5 layers, and the model has 4"):
        propose(EarlyExitDraft(5), ready(deep(tiny), PROMPT), 2, SAMPLED)
    with pytest.raises(ModelError, match="part of the layers"):
        propose(EarlyExitDraft(1), ready(tiny("gpt2").model, PROMPT), 2, SAMPLED)
    draft = EarlyExitDraft(1)
    assert propose(draft, ready(deep(tiny), PROMPT), 0, SAMPLED).token_ids == ()
    assert (draft.cache_bytes(), draft.memory_bytes()) == ((0, 0), 0)
