"""The suffix array and what it answers, against brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.decoding.drafts.store import suffix_array
from lab.decoding.drafts.store.file import StoreFacts
from lab.decoding.drafts.store.store import Store
from lab.decoding.drafts.store.suffix_array import DEPTH, IntArray, build_suffix_array, find_places
from lab.errors import BadInput

texts = st.lists(st.integers(-1, 3), max_size=120)
repeats = st.builds(lambda part, times: part * times, st.lists(st.integers(0, 2), min_size=1, max_size=7), st.just(20))


def finish(steps: Generator[Any, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def array_of(ids: list[int], window: int = 1 << 18, depth: int = DEPTH) -> IntArray:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_array, "_WINDOW", window)
        array: IntArray = finish(build_suffix_array(np.array(ids, dtype=np.int32), depth))
    return array


def store_of(ids: list[int], vocab: int = 100, array: list[int] | None = None) -> Store:
    facts = StoreFacts("a test", "", "", "", 1, 0, len(ids), vocab, "")
    order = array_of(ids) if array is None else np.array(array, dtype=np.int32)
    return Store(np.array(ids, dtype=np.int32), order, facts)


def sorted_places(ids: list[int], depth: int = DEPTH) -> list[int]:
    return sorted(range(len(ids)), key=lambda i: (ids[i : i + depth], i))


@given(texts | repeats, st.sampled_from([2, 7, 1 << 18]), st.sampled_from([1, 4, DEPTH]))
def test_places_are_sorted_by_what_follows(ids: list[int], window: int, depth: int) -> None:
    assert array_of(ids, window, depth).tolist() == sorted_places(ids, depth)


def test_sorting_that_stops_early_would_be_noticed() -> None:
    ids = [0, 1, 0, 0]
    assert array_of(ids, depth=1).tolist() != sorted_places(ids)


def test_progress_rises_to_the_end_and_many_windows_are_many_slices() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_array, "_WINDOW", 64)
        fractions = list(build_suffix_array(np.array([i % 5 for i in range(1000)], dtype=np.int32)))
    assert fractions == sorted(fractions)
    assert 0 <= fractions[0] < fractions[-1] <= 1
    assert len(fractions) > 1000 / 64


def test_more_tokens_than_a_store_takes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix_array, "MAX_TOKENS", 10)
    with pytest.raises(BadInput, match=r"11 tokens.*10"):
        finish(build_suffix_array(np.zeros(11, dtype=np.int32)))


@given(texts, st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_a_pattern_is_found_where_it_stands(ids: list[int], pattern: list[int]) -> None:
    array = array_of(ids)
    first, stop = find_places(np.array(ids, dtype=np.int32), array, pattern)
    expected = [i for i in range(len(ids)) if ids[i : i + len(pattern)] == pattern]
    assert sorted(array[first:stop].tolist()) == expected


def longest_match(ids: list[int], text: list[int], shortest: int, ends: set[int]) -> tuple[int, list[int]] | None:
    """The length, and the places after each occurrence."""
    for size in range(min(16, len(text)), shortest - 1, -1):
        after = [i + size for i in range(len(ids) - size + 1) if ids[i : i + size] == text[-size:]]
        if any(i < len(ids) and ids[i] >= 0 and ids[i] not in ends for i in after):
            return size, after
    return None


@given(texts, st.lists(st.integers(0, 3), max_size=20), st.integers(1, 4), st.sets(st.integers(0, 3), max_size=2))
def test_the_longest_suffix_with_a_continuation_is_found(
    ids: list[int], text: list[int], shortest: int, ends: set[int]
) -> None:
    found = store_of(ids).match(text, shortest=shortest, ends=ends)
    expected = longest_match(ids, text, shortest, ends)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert (found.length, sorted(found.after.tolist())) == (expected[0], expected[1])
        assert found.places == len(expected[1])


def test_a_match_without_a_continuation_would_be_noticed() -> None:
    ids = [1, 2, 3, 9, 2, 3]
    found = store_of(ids).match([2, 3])
    assert found is not None
    assert sorted(found.after.tolist()) == [3, 6]
    assert store_of(ids).match([2, 3], ends={9}, shortest=2) is None
    assert store_of(ids).match([2, 3], ends={9}, shortest=1) is None
    assert store_of([1, 2, -1, 3]).match([1, 2]) is None  # nothing is matched across documents
    assert store_of([1, 2, 3]).match([1, 2, 3], shortest=1) is None


@given(texts, st.sets(st.integers(0, 3), max_size=1))
def test_children_are_counted_by_frequency(ids: list[int], ends: set[int]) -> None:
    after = np.array([*range(0, len(ids), 2), len(ids), len(ids) + 3], dtype=np.int32)
    found = store_of(ids).children(after, ends)
    tokens = [ids[i] for i in after.tolist() if i < len(ids) and ids[i] >= 0 and ids[i] not in ends]
    expected = sorted(Counter(tokens).items(), key=lambda item: (-item[1], item[0]))
    assert [(token, len(places)) for token, places in found] == expected
    assert all(ids[i] == token for token, places in found for i in places.tolist())


def test_many_places_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.decoding.drafts.store.store.MOST_PLACES", 8)
    found = store_of([1, 2] * 50).match([5, 1], shortest=1)
    assert found is not None
    assert found.places == 50
    assert 4 <= len(found.after) <= 8


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40),
    st.lists(st.integers(0, 50), min_size=1, max_size=10),
)
def test_a_store_of_garbage_gives_no_token_outside_the_vocabulary(
    ids: list[int], array: list[int], text: list[int]
) -> None:
    store = store_of(ids, vocab=50, array=(array * len(ids))[: len(ids)])
    found = store.match(text, shortest=1)
    if found is not None:
        assert all(0 <= token < 50 for token, _ in store.children(found.after))
