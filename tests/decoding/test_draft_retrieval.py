"""Retrieval: chains and trees by frequency against brute force, and through the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_suffix_store import store_of

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.drafts.early_exit import EarlyExitDraft
from lab.decoding.drafts.fit import check_store
from lab.decoding.drafts.lookup import LookupDraft
from lab.decoding.drafts.model import ModelDraft
from lab.decoding.drafts.retrieval import RetrievalDraft, most_frequent_chain, most_frequent_tree
from lab.decoding.drafts.store.build import open_store
from lab.decoding.drafts.store.store import Match
from lab.decoding.sampling import Sampling
from lab.decoding.speculative.loop import Round, plain, speculate
from lab.errors import BadInput

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
texts = st.lists(st.integers(-1, 3), min_size=1, max_size=80)
Path = tuple[int, ...]


def matched(after: list[int]) -> Match:
    return Match(1, len(after), np.array(after, dtype=np.int32))


def continuations(ids: list[int], after: list[int], count: int, ends: set[int]) -> Counter[Path]:
    """How often each run of 1 to `count` tokens follows, by reading on from each place."""
    found: Counter[Path] = Counter()
    for start in after:
        path: Path = ()
        for token in ids[start : start + count]:
            if token < 0 or token in ends:
                break
            path = (*path, token)
            found[path] += 1
    return found


def chain_of(found: Counter[Path], count: int) -> Path:
    path: Path = ()
    while len(path) < count:
        onward = [p for p in found if p[:-1] == path]
        if not onward:
            break
        path = min(onward, key=lambda p: (-found[p], p[-1]))
    return path


@given(texts, st.integers(1, 6), st.sets(st.integers(0, 3), max_size=1))
def test_a_chain_follows_the_most_frequent_token(ids: list[int], count: int, ends: set[int]) -> None:
    store, after = store_of(ids), list(range(0, len(ids), 2))
    expected = chain_of(continuations(ids, after, count, ends), count)
    assert most_frequent_chain(store, matched(after), count, ends) == expected


@given(texts, st.integers(1, 12), st.sets(st.integers(0, 3), max_size=1))
def test_a_tree_holds_the_most_frequent_continuations(ids: list[int], count: int, ends: set[int]) -> None:
    store, after = store_of(ids), list(range(0, len(ids), 2))
    tokens, tree = most_frequent_tree(store, matched(after), count, ends)
    found = continuations(ids, after, count, ends)
    paths = [tuple(tokens[i] for i in tree.path(row)) for row in range(len(tokens))]
    assert len(set(paths)) == len(paths) == min(count, len(found))
    assert all(path in found for path in paths)
    taken = [found[path] for path in paths]
    assert taken == sorted(taken, reverse=True)
    assert taken == sorted(found.values(), reverse=True)[: len(paths)]
    for row in (-1, *range(len(tokens))):
        siblings = [tokens[i] for i in tree.children(row)]
        assert len(set(siblings)) == len(siblings)


def test_another_order_would_be_noticed() -> None:
    ids = [5, 6, 5, 6, 5, 7, 5, 4]
    store = store_of(ids)
    match = store.match([9, 5], shortest=1)
    assert match is not None
    assert most_frequent_chain(store, match, 1) == (6,)  # neither the first id nor the last place
    tokens, tree = most_frequent_tree(store, match, 4)
    assert (tokens, tree.parents) == ((6, 5, 4, 7), (-1, 0, -1, -1))


def sight(ids: list[int]) -> Sight:
    return Sight(ids=ids, target=None, generator=torch.Generator())  # type: ignore[arg-type]


def test_a_proposal_says_where_it_came_from() -> None:
    store = store_of([1, 2, 3, 4, 1, 2, 3, 4, 8, 1, 2, 9])
    rules = Distribution(Sampling(), end_token_ids=(8,))
    chain = RetrievalDraft(store).propose(sight([7, 1, 2]), 3, rules)
    assert (chain.token_ids, chain.source) == ((3, 4, 1), "2 tokens found 3x in a test")
    assert chain.q == (None,) * 3
    tree = RetrievalDraft(store, tree=True).propose(sight([7, 1, 2]), 3, rules)
    assert (tree.token_ids, tree.tree.parents) == ((3, 4, 9), (-1, 0, -1))
    assert RetrievalDraft(store).propose(sight([3, 4]), 3, rules).token_ids == (1, 2, 3)  # 8 is an end token
    nothing = Proposal.chain(())
    for draft in (RetrievalDraft(store), RetrievalDraft(store, tree=True)):
        assert draft.propose(sight([6, 7]), 3, rules) == nothing
        assert draft.propose(sight([2]), 3, rules) == nothing  # shorter than the least match
        assert draft.propose(sight([1, 2]), 0, rules) == nothing
        assert draft.cache_bytes() == (0, 0)
        assert draft.memory_bytes() == 2 * 4 * 12
    assert RetrievalDraft(store, shortest=1).propose(sight([2]), 1, rules).token_ids == (3,)


@pytest.mark.parametrize("shortest", [0, 17])
def test_a_least_match_out_of_range_is_refused(shortest: int) -> None:
    with pytest.raises(BadInput, match=str(shortest)):
        RetrievalDraft(store_of([1, 2]), shortest=shortest)


def run(loop: Generator[Any, None, Any]) -> tuple[list[Any], Any]:
    items = []
    while True:
        try:
            items.append(next(loop))
        except StopIteration as stop:
            return items, stop.value


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_greedy_text_is_plain_greedy(tiny: Tiny, kind: str, tree: bool) -> None:
    model, prompt, new = tiny(kind).model, [11, 12, 13], 24
    expected = run(plain(model, prompt, max_new_tokens=new))[1]
    own_words = [*prompt, *expected]
    # The model's own text with detours, so that some is accepted and some is not.
    ids = own_words + [
        token
        for detour in (3, 4)  # of tokens equally frequent a chain takes the lower
        for token in (-1, *(t if i % 5 or i < 5 else detour for i, t in enumerate(own_words)))
    ]
    items, end = run(speculate(model, prompt, RetrievalDraft(store_of(ids, 320), tree), max_new_tokens=new, gamma=6))
    assert end.token_ids == expected
    rounds = [r for r in items if isinstance(r, Round)]
    assert len(rounds) < new - 1
    assert any(len(r.path) < len(r.proposal.token_ids) for r in rounds)
    assert any(not r.proposal.tree.is_chain for r in rounds) == tree


@pytest.mark.model
def test_on_the_real_model_all_drafts_leave_greedy_text_alone(packaged_model: LoadedModel, tmp_path: FilePath) -> None:
    model, new = packaged_model.model, 20
    prompt = packaged_model.tokenizer("In Python, the for statement is used to iterate over")["input_ids"]
    expected = run(plain(model, prompt, max_new_tokens=new))[1]
    opening = open_store(packaged_model.tokenizer, tokenizer_name=packaged_model.facts.name, directory=tmp_path)
    store = run(opening)[1]
    assert check_store(packaged_model, store).reason == ""
    drafts = (
        LookupDraft(3),
        RetrievalDraft(store),
        RetrievalDraft(store, tree=True),
        EarlyExitDraft(28),
        ModelDraft(packaged_model, packaged_model, capacity=128),
    )
    for draft in drafts:
        items, end = run(speculate(model, prompt, draft, max_new_tokens=new, gamma=4))
        assert end.token_ids == expected, draft.name
        judged = [row for r in items if isinstance(r, Round) for row in r.verdict.rows if row.kind != "unjudged"]
        accepted = sum(row.kind == "accepted" for row in judged)
        if draft.name == "model":
            assert accepted == len(judged) > 0
        if draft.name == "early_exit":
            assert 0 < accepted < len(judged)
