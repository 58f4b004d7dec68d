"""Going back in a cache: after any appending and taking back it holds, bit for bit, what it would have held."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lab.decoding import cache_layout
from lab.decoding.room import RoomyLayer
from lab.errors import ModelError

WINDOW = 8
KINDS = ("roomy", "plain", "sliding")


def cache_of(*kinds: str) -> DynamicCache:
    cache = DynamicCache()
    made = {
        "roomy": lambda: RoomyLayer(4),  # so that it grows in the middle of a round
        "plain": DynamicLayer,
        "sliding": lambda: DynamicSlidingWindowLayer(sliding_window=WINDOW),
    }
    cache.layers = [made[kind]() for kind in kinds]
    return cache


def states(tokens: list[int]) -> Tensor:
    """(1, 2, token, 4): what a model's projection would give, each token unlike the others."""
    return torch.tensor(tokens, dtype=torch.float32)[None, None, :, None] + torch.arange(8.0).view(1, 2, 1, 4) / 8


def append(cache: DynamicCache, tokens: list[int]) -> None:
    for index in range(len(cache.layers)):
        cache.update(states(tokens), -states(tokens), index)


def held(cache: DynamicCache) -> list[tuple[Tensor, Tensor, int]]:
    return [(layer.keys.clone(), layer.values.clone(), layer.get_seq_length()) for layer in cache.layers]


def same(one: DynamicCache, other: DynamicCache) -> bool:
    return all(
        a[2] == b[2] and torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
        for a, b in zip(held(one), held(other), strict=True)
    )


def token_by_token(tokens: list[int]) -> DynamicCache:
    cache = cache_of(*KINDS)
    for token in tokens:
        append(cache, [token])
    return cache


@pytest.mark.parametrize("length", [1, WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW])
@pytest.mark.parametrize("added", [1, 3, WINDOW - 1])
def test_any_rows_stay_and_the_others_leave_no_trace(length: int, added: int) -> None:
    text, rows = list(range(length)), list(range(100, 100 + added))
    for kept in ([], [0], list(range(added)), [added - 1], list(range(0, added, 2))):
        cache = token_by_token(text)
        since = cache_layout.mark(cache)
        append(cache, rows)
        cache_layout.keep(cache, since, kept)
        expected = token_by_token([*text, *(rows[row] for row in kept)])
        assert same(cache, expected), kept
        append(cache, [7])
        append(expected, [7])
        assert same(cache, expected), kept


@given(
    length=st.integers(1, 20),
    rounds=st.lists(st.tuples(st.integers(1, WINDOW - 1), st.sets(st.integers(0, WINDOW - 2))), max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_many_rounds(length: int, rounds: list[tuple[int, set[int]]]) -> None:
    text = list(range(length))
    cache = token_by_token(text)
    for number, (added, wanted) in enumerate(rounds):
        rows = [1000 * (number + 1) + row for row in range(added)]
        since = cache_layout.mark(cache)
        append(cache, rows[: added // 2])  # a chain grows token by token or at once: the mark does not mind
        if rows[added // 2 :]:
            append(cache, rows[added // 2 :])
        kept = sorted(row for row in wanted if row < added)
        cache_layout.keep(cache, since, kept)
        text += [rows[row] for row in kept]
    assert same(cache, token_by_token(text))


def test_a_full_window_cut_at_its_end_is_not_what_it_was() -> None:
    """The mutation: what rolled out of the window must come back, cutting alone does not bring it."""
    cache, expected = token_by_token(list(range(12))), token_by_token(list(range(12)))
    append(cache, [100, 101])
    layer = cache.layers[2]
    layer.keys, layer.values = layer.keys[:, :, :-2], layer.values[:, :, :-2]
    layer.cumulative_length -= 2
    for other in cache.layers[:2]:
        other.crop(-2)
    assert not same(cache, expected)


def test_a_window_that_all_rows_went_through_cannot_go_back() -> None:
    cache = token_by_token(list(range(12)))
    since = cache_layout.mark(cache)
    append(cache, list(range(100, 100 + WINDOW)))
    with pytest.raises(ModelError, match=r"8 tokens went through a sliding window of 7.*fewer"):
        cache_layout.keep(cache, since, [0])


def test_a_mark_survives_growth_and_later_marks() -> None:
    cache = token_by_token([1, 2, 3])
    outer = cache_layout.mark(cache)
    append(cache, [4, 5])  # the roomy layer, made for 4, grows
    inner = cache_layout.mark(cache)
    append(cache, [6])
    cache_layout.keep(cache, inner, [])
    assert same(cache, token_by_token([1, 2, 3, 4, 5]))
    cache_layout.keep(cache, outer, [1])
    assert same(cache, token_by_token([1, 2, 3, 5]))


def test_layers_that_saw_nothing_keep_what_they_have() -> None:
    """A pass through the first layers only."""
    cache = cache_of("roomy", "roomy")
    append(cache, [1, 2])
    since = cache_layout.mark(cache)
    cache.update(states([3]), -states([3]), 0)
    cache_layout.keep(cache, since, [])
    assert cache_layout.stored_lengths(cache) == (2, 2)


def test_shortening_refuses_a_window() -> None:
    cache = cache_of("roomy")
    append(cache, [1, 2, 3])
    cache_layout.shorten(cache, 1)
    assert cache_layout.stored_lengths(cache) == (1,)
    with pytest.raises(ModelError, match="cannot go back"):
        cache_layout.shorten(token_by_token([1, 2]), 1)
