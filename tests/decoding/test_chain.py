"""A model with its own cache as draft: after every round, q is what the draft would say to the plain text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from lab.decoding.choose_pass import choose_pass
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.drafts.chain import ModelChain
from lab.decoding.passes import Pass
from lab.decoding.processors import Repetition
from lab.decoding.sampling import Sampling
from lab.quantization.packed.pack import pack_shell

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PROMPT = [5, 9, 33, 70, 101, 17, 60, 8, 44, 3]
SAMPLED = Distribution(Sampling(do_sample=True, temperature=0.8, top_k=50))


def sight_of(ids: list[int]) -> Sight:
    # the chain never looks at the target
    return Sight(list(ids), cast(Pass, None), torch.Generator().manual_seed(1))


def chain_on(model: torch.nn.Module, **options: Any) -> ModelChain:
    return ModelChain(choose_pass(model, 64, layers=(), fast=None, mistake="nothing"), **options)


def worst(model: torch.nn.Module, proposal: Proposal, ids: list[int], distribution: Distribution) -> float:
    """The largest difference between q and the distribution from a fresh pass over the whole text."""
    off = 0.0
    for at, q in enumerate(proposal.q):
        text = [*ids, *proposal.token_ids[:at]]
        with torch.inference_mode():
            fresh = distribution.of(model(torch.tensor([text])).logits[0, -1].float(), text)
        assert q is not None
        off = max(off, float((q - fresh).abs().max()))
    return off


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral", "gemma3", "mixtral"])
def test_q_is_the_models_own_after_any_acceptance(tiny: Tiny, kind: str, warm: bool) -> None:
    model = tiny(kind).model
    chain, sight, draw = chain_on(model), sight_of(PROMPT), random.Random(2)
    if warm:
        for _ in chain.warm(sight.ids):
            assert not torch.is_inference_mode_enabled()
    for accepted in (4, 0, 2, 4, 4, 1, 3, 0):
        with torch.inference_mode():
            proposal = chain.propose(sight, 4, SAMPLED)
        assert len(proposal.token_ids) == 4
        assert worst(model, proposal, sight.ids, SAMPLED) < 1e-4
        sight.ids += [*proposal.token_ids[:accepted], draw.randrange(3, 300)]
        with torch.inference_mode():
            chain.settle(sight)
        # all but the last token of the text; after full acceptance the last proposed one is missing too
        assert chain.cache_bytes()[1] == len(sight.ids) - (2 if accepted == 4 else 1)


def test_a_chain_that_forgets_to_settle_is_seen(tiny: Tiny) -> None:
    """The mutation: rejected tokens stay in the draft's cache."""
    model = tiny("llama").model
    chain, sight = chain_on(model), sight_of(PROMPT)
    with torch.inference_mode():
        chain.propose(sight, 4, SAMPLED)
        sight.ids += [200, 201, 202, 203, 204]
        proposal = chain.propose(sight, 2, SAMPLED)
    assert worst(model, proposal, sight.ids, SAMPLED) > 1e-3


def test_a_round_that_another_draft_took_is_caught_up(tiny: Tiny) -> None:
    model = tiny("llama").model
    chain, sight = chain_on(model), sight_of(PROMPT)
    with torch.inference_mode():
        chain.propose(sight, 3, SAMPLED)
        sight.ids += [50]
        chain.settle(sight)
        for _ in range(2):
            sight.ids += list(range(60, 80))  # more than goes through as rows
            chain.settle(sight)
        proposal = chain.propose(sight, 3, SAMPLED)
    assert worst(model, proposal, sight.ids, SAMPLED) < 1e-4


def test_processors_see_what_precedes_each_token(tiny: Tiny) -> None:
    model = tiny("llama").model
    rules = Distribution(Sampling(do_sample=True), Repetition(repetition_penalty=1.8), len(PROMPT))
    chain, sight = chain_on(model), sight_of(PROMPT)
    with torch.inference_mode():
        proposal = chain.propose(sight, 5, rules)
    assert worst(model, proposal, sight.ids, rules) < 1e-4
    assert worst(model, proposal, sight.ids, Distribution(Sampling(do_sample=True))) > 1e-4  # the mutation


def test_greedy_is_one_hot_and_stops_at_an_end_token(tiny: Tiny) -> None:
    model = tiny("llama").model
    with torch.inference_mode():
        free = chain_on(model).propose(sight_of(PROMPT), 6, Distribution(Sampling()))
        assert free.q == (None,) * 6
        end = free.token_ids[2]
        cut = chain_on(model).propose(sight_of(PROMPT), 6, Distribution(Sampling(), end_token_ids=(end,)))
    assert cut.token_ids == free.token_ids[: free.token_ids.index(end) + 1]


def test_nothing_is_proposed_beyond_the_drafts_context(tiny: Tiny) -> None:
    model = tiny("llama").model
    counts = []
    for context in (len(PROMPT) - 1, len(PROMPT), len(PROMPT) + 2, 100):
        with torch.inference_mode():
            proposal = chain_on(model, context=context).propose(sight_of(PROMPT), 4, Distribution(Sampling()))
        counts.append(len(proposal.token_ids))
    assert counts == [0, 1, 3, 4]


@pytest.mark.parametrize("bits", [8, 4])
def test_a_packed_shell_drafts_with_its_own_distribution(tiny: Tiny, bits: Any) -> None:
    model = tiny("llama").model
    shell = pack_shell(model, bits, 32).shell
    chain, sight = chain_on(shell), sight_of(PROMPT)
    with torch.inference_mode():
        proposal = chain.propose(sight, 4, SAMPLED)
    assert worst(shell, proposal, sight.ids, SAMPLED) < 0.02  # its activations are rounded to bf16
