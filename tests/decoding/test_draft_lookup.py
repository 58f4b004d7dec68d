"""Prompt look-up against a search in a string, against transformers' own, and through the loop."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, SupportsIndex

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.drafts.lookup import LookupDraft
from lab.decoding.sampling import Sampling
from lab.decoding.speculative.loop import Round, Speculated, plain, speculate
from lab.errors import BadInput

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
GREEDY = Distribution(Sampling())
texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def sight(ids: list[int]) -> Sight:
    return Sight(ids=ids, target=None, generator=torch.Generator())  # type: ignore[arg-type]


def propose(draft: LookupDraft, ids: list[int], count: int) -> Proposal:
    return draft.propose(sight(ids), count, GREEDY)


def searched(ids: list[int], ngram: int, count: int, ends: set[int]) -> list[int]:
    """The same by searching a string."""
    text = "".join(map(chr, ids))
    for size in range(min(ngram, len(text) - 1), 0, -1):
        at = text.find(text[-size:])
        if at + size < len(text):
            following = [ord(c) for c in text[at + size :][:count]]
            stop = next((i for i, token in enumerate(following) if token in ends), len(following))
            return following[:stop]
    return []


def theirs(ids: list[int], ngram: int, count: int, ends: set[int]) -> list[int]:
    generator = PromptLookupCandidateGenerator(
        eos_token_id=torch.tensor(sorted(ends)) if ends else None,
        num_output_tokens=count,
        max_matching_ngram_size=ngram,
        max_length=10_000,
    )
    candidates: list[int] = generator.get_candidates(torch.tensor([ids]))[0][0].tolist()
    return candidates[len(ids) :]


@given(texts, st.integers(1, 5), st.integers(1, 8), st.sets(st.integers(0, 3), max_size=1))
def test_candidates_are_those_of_a_string_search_and_of_transformers(
    ids: list[int], ngram: int, count: int, ends: set[int]
) -> None:
    grown = LookupDraft(ngram, ends)
    for length in range(1, len(ids) + 1):  # the index grows from round to round
        found = propose(grown, ids[:length], count)
        assert list(found.token_ids) == searched(ids[:length], ngram, count, ends)
    assert list(found.token_ids) == list(propose(LookupDraft(ngram, ends), ids, count).token_ids)
    assert list(found.token_ids) == theirs(ids, ngram, count, ends)
    assert found.q == (None,) * len(found.token_ids)
    assert found.tree.is_chain


class _TakesTheLastMatch(LookupDraft):
    def find(self, ids: Any) -> tuple[int, int] | None:
        found = super().find(ids)
        if found is None:
            return None
        size, tail = found[0], tuple(ids[-found[0] :])
        return size, max(i for i in range(len(ids) - size) if tuple(ids[i : i + size]) == tail)


class _MatchesItself(LookupDraft):
    def find(self, ids: Any) -> tuple[int, int] | None:
        return (1, len(ids) - 1) if len(ids) > 1 else None


@pytest.mark.parametrize("broken", [_TakesTheLastMatch, _MatchesItself])
def test_a_broken_search_would_be_noticed(broken: type[LookupDraft]) -> None:
    ids = [0, 1, 0, 2, 0]
    assert searched(ids, 1, 1, set()) == theirs(ids, 1, 1, set()) == [1]
    assert list(propose(LookupDraft(1), ids, 1).token_ids) == [1]
    assert list(propose(broken(1), ids, 1).token_ids) != [1]


def test_the_source_says_which_run_and_where() -> None:
    draft = LookupDraft(3)
    assert propose(draft, [7, 1, 2, 3, 9, 1, 2, 3], 2).source == "3-gram at position 1"
    assert propose(draft, [7, 1, 2, 3, 9, 1, 2, 3, 4], 2) == Proposal.chain(())
    assert propose(LookupDraft(3), [1, 1, 1, 1], 5).source == "3-gram at position 0"  # it may overlap


def test_another_text_is_indexed_anew() -> None:
    draft = LookupDraft(2)
    assert propose(draft, [1, 2, 3, 1], 1).token_ids == (2,)
    assert propose(draft, [4, 5, 6, 7, 4], 1).token_ids == (5,)
    assert propose(draft, [1], 1).token_ids == ()


class _Counted(list[int]):
    reads = 0

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        self.reads += 1
        return super().__getitem__(index)


def test_a_long_text_is_indexed_once() -> None:
    ids = _Counted((i * i) % 997 for i in range(8000))
    draft = LookupDraft(3)
    propose(draft, ids, 4)
    assert ids.reads > 3 * 7990
    ids.append(5)
    ids.reads = 0
    assert propose(draft, ids, 4).token_ids == tuple(searched(list(ids), 3, 4, set()))
    assert ids.reads < 20
    assert draft.memory_bytes() > 8000 * 8
    assert draft.cache_bytes() == (0, 0)


@pytest.mark.parametrize("ngram", [0, -1, 65])
def test_a_run_length_out_of_range_is_refused(ngram: int) -> None:
    with pytest.raises(BadInput, match=str(ngram)):
        LookupDraft(ngram)


def run(loop: Generator[Any, None, Any]) -> tuple[list[Any], Any]:
    items = []
    while True:
        try:
            items.append(next(loop))
        except StopIteration as stop:
            return items, stop.value


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("new", [1, 2, 3, 24])
def test_greedy_text_is_plain_greedy_of_exactly_the_length_asked_for(tiny: Tiny, kind: str, new: int) -> None:
    model = tiny(kind).model
    for prompt in ([5], [11, 12, 13, 11, 12, 13, 11, 12, 13]):
        expected = run(plain(model, prompt, max_new_tokens=new))[1]
        items, end = run(speculate(model, prompt, LookupDraft(3), max_new_tokens=new, gamma=4))
        assert isinstance(end, Speculated)
        assert end.token_ids == expected
        assert len(end.token_ids) == new
        assert all(len(r.proposal.token_ids) <= 4 for r in items if isinstance(r, Round))


@pytest.mark.parametrize("new", [1, 2, 3, 20])
def test_the_text_is_that_of_generate_with_its_own_look_up(tiny: Tiny, new: int) -> None:
    model: Any = tiny("llama").model
    for prompt in ([5], [11, 12, 13, 11, 12, 13, 11, 12, 13]):
        ids = torch.tensor([prompt])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            do_sample=False,
            prompt_lookup_num_tokens=3,
            eos_token_id=None,
            pad_token_id=0,
        )
        ours = run(speculate(model, prompt, LookupDraft(2), max_new_tokens=new, gamma=3))[1]
        assert ours.token_ids == out[0, len(prompt) :].tolist()
