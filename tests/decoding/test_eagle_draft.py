"""The draft that chains the trained head: what it drew from, what it remembers, and the text, which it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from eagle_heads import busy_head
from torch import Tensor

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.drafts.eagle.head import EagleHead
from lab.decoding.drafts.eagle_draft import EagleDraft
from lab.decoding.drafts.lookup_then_head import LookupThenHead
from lab.decoding.passes import TransformersPass
from lab.decoding.processors import Repetition
from lab.decoding.sampling import Sampling
from lab.decoding.speculative.loop import plain, speculate

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


class Chain:
    """A run by hand: a target's pass, its features, and what the draft sees of them."""

    def __init__(self, loaded: LoadedModel, ids: list[int]) -> None:
        model: Any = loaded.model
        self._model = model
        self.sight = Sight(list(ids), TransformersPass(model, 64), torch.Generator().manual_seed(0))
        self.sight.features = self.features()[:-1]

    def features(self) -> Tensor:
        with torch.inference_mode():
            hidden: Tensor = self._model.model(torch.tensor([self.sight.ids])).last_hidden_state[0]
            return hidden

    def accept(self, tokens: list[int]) -> None:
        before = len(self.sight.ids)
        self.sight.ids.extend(tokens)
        self.sight.features = self.features()[before - 1 : -1]


def by_hand(head: EagleHead, chain: Chain, tokens: tuple[int, ...]) -> list[Tensor]:
    """The logits from which a draft of `tokens` must come, over the vocabulary, without any cache kept."""
    ids, features = chain.sight.ids, chain.features()[:-1]
    with torch.no_grad():
        estimate, past = head(torch.tensor([ids[1:]]), features[None])
        logits = [head.spread(head.logits(estimate[0, -1]))]
        for token in tokens[:-1]:
            estimate, past = head(torch.tensor([[token]]), estimate[:, -1:], past)
            logits.append(head.spread(head.logits(estimate[0, -1])))
    return logits


RULES = [
    Distribution(Sampling(do_sample=True)),
    Distribution(Sampling(do_sample=True, temperature=0.6, top_k=12, top_p=0.8)),
    Distribution(Sampling(do_sample=True, top_k=300), Repetition(repetition_penalty=1.7)),
]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("accepted", [0, 2, 4])
def test_q_is_what_the_token_was_drawn_from(tiny: Tiny, rules: Distribution, accepted: int) -> None:
    loaded = tiny()
    head, chain = busy_head(loaded), Chain(loaded, [1, 7, 30, 12, 30])
    draft = EagleDraft(head, 16)
    for _ in range(3):
        with torch.inference_mode():
            proposal = draft.propose(chain.sight, 4, rules)
        assert len(proposal.token_ids) == 4
        logits = by_hand(head, chain, proposal.token_ids)
        ids = list(chain.sight.ids)
        for token, q, row in zip(proposal.token_ids, proposal.q, logits, strict=True):
            assert q is not None
            assert q.shape == (320,)
            assert float(q.sum()) == pytest.approx(1, abs=1e-5)
            assert torch.allclose(q, rules.of(row, ids), atol=1e-5)
            assert q[1::2].abs().sum() == 0  # no row, no probability
            assert q[token] > 0
            ids.append(token)
        chain.accept([*proposal.token_ids[:accepted], 5])
        draft.settle(chain.sight, accepted)
        held, positions = draft.cache_bytes()
        assert positions <= len(chain.sight.ids) - 1
        assert held == positions * 2 * 2 * 8 * 4  # keys and values, 2 heads of 8, float32


def test_greedy_drafts_are_the_most_probable_tokens(tiny: Tiny) -> None:
    loaded = tiny()
    head, chain = busy_head(loaded), Chain(loaded, [1, 7, 30, 12])
    with torch.inference_mode():
        proposal = EagleDraft(head, 16).propose(chain.sight, 5, Distribution(Sampling()))
    expected = tuple(int(row.argmax()) for row in by_hand(head, chain, proposal.token_ids))
    assert proposal.token_ids == expected
    assert proposal.q == (None,) * 5


def test_drafting_stops_at_an_end_token(tiny: Tiny) -> None:
    loaded = tiny()
    head, chain = busy_head(loaded), Chain(loaded, [1, 7, 30, 12])
    with torch.inference_mode():
        free = EagleDraft(head, 16).propose(chain.sight, 5, Distribution(Sampling())).token_ids
        rules = Distribution(Sampling(), end_token_ids=(free[1],))
        assert EagleDraft(head, 16).propose(chain.sight, 5, rules).token_ids == free[: free.index(free[1]) + 1]


def test_a_gap_in_the_features_is_survived(tiny: Tiny) -> None:
    loaded = tiny()
    head, chain = busy_head(loaded), Chain(loaded, [1, 7, 30, 12])
    draft, rules = EagleDraft(head, 8), Distribution(Sampling())
    with torch.inference_mode():
        draft.propose(chain.sight, 2, rules)
        chain.accept([3, 4, 5])
        assert chain.sight.features is not None
        chain.sight.features = chain.sight.features[1:]
        assert len(draft.propose(chain.sight, 2, rules).token_ids) == 2
    assert draft.cache_bytes()[1] == 2


class Scripted:
    """A look-up that finds what it is told to."""

    name, wants_features = "scripted", False

    def __init__(self, found: list[tuple[int, ...]]) -> None:
        self.found = found

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Any:
        del sight, distribution
        return Proposal.chain(self.found.pop(0)[:count])

    def settle(self, sight: Sight, accepted: int) -> None:
        del sight, accepted

    def cache_bytes(self) -> tuple[int, int]:
        return 0, 0


def test_the_head_catches_up_after_rounds_of_look_up(tiny: Tiny) -> None:
    loaded = tiny()
    head, chain = busy_head(loaded), Chain(loaded, [1, 7, 30, 12])
    draft = LookupThenHead(Scripted([(9, 9), (), (8,), (6, 7), ()]), EagleDraft(head, 16))
    rules = Distribution(Sampling())
    seen = []
    for _ in range(5):
        with torch.inference_mode():
            proposal = draft.propose(chain.sight, 3, rules)
        seen.append(proposal.token_ids)
        if len(proposal.token_ids) == 3:
            assert proposal.token_ids == tuple(int(r.argmax()) for r in by_hand(head, chain, proposal.token_ids))
        chain.accept([*proposal.token_ids[:1], 11])
        draft.settle(chain.sight, 1)
    assert [len(s) for s in seen] == [2, 3, 1, 2, 3]


def finished(run: Any) -> Any:
    """The end of a generator run."""
    while True:
        try:
            next(run)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("gamma", [1, 3])
def test_greedy_text_is_the_plain_one(tiny: Tiny, gamma: int) -> None:
    loaded = tiny()
    prompt = [1, 7, 30, 12, 9]
    expected = finished(plain(loaded.model, prompt, max_new_tokens=20))
    draft = EagleDraft(busy_head(loaded), 64)
    assert finished(speculate(loaded.model, prompt, draft, max_new_tokens=20, gamma=gamma)).token_ids == expected
