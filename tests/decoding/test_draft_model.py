"""Another model as draft: its cache, padded vocabularies, short contexts, and the loop."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tiny_models import build_tokenizer

from lab.decoding.choose_pass import choose_pass
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Sight
from lab.decoding.drafts.model import ModelDraft, load_draft
from lab.decoding.sampling import Sampling
from lab.decoding.speculative.loop import Round, plain, speculate
from lab.errors import BadInput, ModelError

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PROMPT = [5, 9, 33, 70, 101, 17]
SAMPLED = Distribution(Sampling(do_sample=True, temperature=1.2))


def run(loop: Generator[Any, None, Any]) -> tuple[list[Any], Any]:
    items = []
    while True:
        try:
            items.append(next(loop))
        except StopIteration as stop:
            return items, stop.value


def between_rounds(target: LoadedModel, ids: list[int]) -> Sight:
    runner = choose_pass(target.model, 64, layers=(), fast=None, mistake="nothing")
    return Sight(ids=list(ids), target=runner, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("gamma", [1, 3, 6])  # the windows of the tiny models take 7 tokens at once
@pytest.mark.parametrize("kinds", [("llama", "llama"), ("llama", "gpt2"), ("gemma3", "mistral"), ("qwen3", "gemma2")])
def test_greedy_text_is_plain_greedy(tiny: Tiny, kinds: tuple[str, str], gamma: int) -> None:
    target, loaded = tiny(kinds[0]), tiny(kinds[1], seed=3)
    expected = run(plain(target.model, PROMPT, max_new_tokens=20))[1]
    end = run(speculate(target.model, PROMPT, ModelDraft(loaded, target), max_new_tokens=20, gamma=gamma))[1]
    assert end.token_ids == expected


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_the_target_as_its_own_draft_is_accepted_whole(tiny: Tiny, kind: str) -> None:
    target = tiny(kind)
    draft = ModelDraft(target, target)
    items, end = run(speculate(target.model, PROMPT, draft, max_new_tokens=31, gamma=4))
    rounds = [r for r in items if isinstance(r, Round)]
    assert end.token_ids == run(plain(target.model, PROMPT, max_new_tokens=31))[1]
    assert all(len(r.path) == len(r.proposal.token_ids) for r in rounds)
    assert len(rounds) == 6
    # After a round accepted whole its last token goes through the draft too, in the next round.
    assert all(later.draft_positions[0] == now.draft_positions[2] for now, later in pairwise(rounds))
    held, positions = draft.cache_bytes()
    assert held > 0
    assert positions <= len(PROMPT) + 31
    assert draft.memory_bytes() == 0


@pytest.mark.parametrize(("ours", "theirs"), [(320, 384), (384, 320)])
def test_a_padded_vocabulary_is_masked(tiny: Tiny, ours: int, theirs: int) -> None:
    target, loaded = tiny("llama", vocab_size=ours), tiny("llama", seed=3, vocab_size=theirs)
    draft = ModelDraft(loaded, target)
    assert "padded" in draft.notes[0]
    with torch.inference_mode():
        found = draft.propose(between_rounds(target, PROMPT), 6, SAMPLED)
    least = min(ours, theirs)
    for q in found.q:
        assert q is not None
        assert q.shape == (ours,)
        assert bool((q[least:] == 0).all())
        assert float(q.sum()) == pytest.approx(1, abs=1e-5)
    for rules in (Distribution(Sampling()), SAMPLED):
        prompt = [*PROMPT, ours - 1]  # an id without a token, which a wider target may say
        end = run(
            speculate(target.model, prompt, ModelDraft(loaded, target), max_new_tokens=16, distribution=rules, gamma=3)
        )[1]
        assert len(end.token_ids) == 16
        if rules.greedy:
            assert end.token_ids == run(plain(target.model, prompt, max_new_tokens=16))[1]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_draft_that_reads_less_stops_there_and_the_run_goes_on(tiny: Tiny, kind: str) -> None:
    sizes = {"n_positions": 16} if kind == "gpt2" else {"max_position_embeddings": 16}
    target, loaded = tiny("llama"), tiny(kind, seed=3, **sizes)
    items, end = run(speculate(target.model, PROMPT, ModelDraft(loaded, target), max_new_tokens=24, gamma=4))
    assert end.token_ids == run(plain(target.model, PROMPT, max_new_tokens=24))[1]
    rounds = [r for r in items if isinstance(r, Round)]
    assert rounds[0].proposal.token_ids
    assert rounds[-1].proposal.token_ids == ()
    longer = [*PROMPT] * 5
    end = run(speculate(target.model, longer, ModelDraft(loaded, target), max_new_tokens=4, gamma=2))[1]
    assert end.token_ids == run(plain(target.model, longer, max_new_tokens=4))[1]


def test_room_that_is_too_small_ends_the_proposals(tiny: Tiny) -> None:
    target, loaded = tiny("llama"), tiny("llama", seed=3)
    items, end = run(
        speculate(target.model, PROMPT, ModelDraft(loaded, target, capacity=9), max_new_tokens=12, gamma=4)
    )
    assert end.token_ids == run(plain(target.model, PROMPT, max_new_tokens=12))[1]
    assert [r for r in items if isinstance(r, Round)][-1].proposal.token_ids == ()


@pytest.mark.parametrize("rules", [SAMPLED, Distribution(Sampling())], ids=["sampled", "greedy"])
def test_a_draft_whose_logits_are_no_numbers_does_no_harm(tiny: Tiny, rules: Distribution) -> None:
    from dataclasses import replace

    from transformers import LlamaForCausalLM

    target = tiny("llama")
    broken = LlamaForCausalLM(target.model.config).eval()
    with torch.no_grad():
        broken.model.norm.weight.fill_(torch.nan)
    draft = ModelDraft(replace(target, model=broken), target)
    end = run(speculate(target.model, PROMPT, draft, max_new_tokens=12, distribution=rules, gamma=3))[1]
    assert len(end.token_ids) == 12
    if rules.greedy:
        assert end.token_ids == run(plain(target.model, PROMPT, max_new_tokens=12))[1]


def test_a_draft_is_loaded_by_name_and_says_its_progress(tiny: Tiny, tiny_directory: Callable[..., Path]) -> None:
    target = tiny("llama")
    said: list[str] = []
    loaded = load_draft(str(tiny_directory("llama", seed=3)), target, lambda stage, _: said.append(stage))
    assert "loading the weights" in said
    assert (loaded.dtype, loaded.device) == (target.dtype, target.device)
    assert load_draft(target.facts.id, target) is target
    weights = sum(p.nbytes for p in loaded.model.parameters())
    assert weights <= ModelDraft(loaded, target).memory_bytes() <= weights + 4096


def test_a_draft_that_cannot_be_used_is_refused_before_the_run(tiny: Tiny, tmp_path: Path) -> None:
    from tiny_models import save_tiny

    target = tiny("llama")
    for name in ("", "  "):
        with pytest.raises(BadInput, match="No draft model"):
            load_draft(name, target)
    with pytest.raises(ModelError):
        load_draft(str(tmp_path / "nothing"), target)
    other = save_tiny(tmp_path / "other-family", seed=3)
    tokenizer = build_tokenizer()
    tokenizer.add_tokens(["<|extra|>"])
    tokenizer.save_pretrained(other)
    with pytest.raises(ModelError, match="other-family has another tokenizer"):
        load_draft(str(other), target)
