"""A suffix array of token ids with numpy: all places of a text, sorted by what follows them.

Built by prefix doubling (Manber & Myers 1993): places sorted by their first k tokens are sorted by 2k with the rank of
the place k further on as second key. Sorting stops at `DEPTH` tokens: a query matches at most 16, and nobody asks
for the order beyond. Places whose first `DEPTH` tokens are equal stay in the order of the text.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from lab.errors import BadInput

DEPTH = 32
"""Tokens by which places are sorted; a pattern may be as long."""

MAX_TOKENS = 20_000_000
"""About 80 MB of English text. Building takes 13 bytes a token, the file 8."""

_WINDOW = 1 << 18
_INDEX_BITS = 25  # MAX_TOKENS + 1 fits

IntArray = NDArray[np.int32]


def build_suffix_array(ids: IntArray, depth: int = DEPTH) -> Generator[float, None, IntArray]:
    """Sort the places of a text.

    Between yields one window of 262,144 places is sorted (15 to 60 ms). A group of places that are alike so far is
    sorted in one call, 120 to 300 ms a million: a text with one token a million times makes slices above 200 ms.

    Args:
        ids: (token,) int32, from -1 up; -1 separates documents and is below every token.
        depth: a power of two.

    Yields:
        The fraction done, 0 to 1. Stop earlier: nothing is held.

    Returns:
        (token,) int32: the places in order.

    Raises:
        BadInput: more than `MAX_TOKENS` tokens.
    """
    count = len(ids)
    if count > MAX_TOKENS:
        raise BadInput(
            f"The text has {count:,} tokens.", remedy=f"A store takes at most {MAX_TOKENS:,}: give less text."
        )
    array = np.empty(count, dtype=np.int32)
    if not count:
        return array
    rounds = 1 + max(depth - 1, 0).bit_length()
    windows = -(-count // _WINDOW)
    yield from (done / (windows * rounds) for done in _by_first_token(ids, array))
    heads = np.ones(count + 1, dtype=np.bool_)
    ranks = np.empty(count, dtype=np.int32)
    for start in range(0, count, _WINDOW):
        stop = min(start + _WINDOW, count)
        first = ids[array[max(start - 1, 0) : stop]]
        np.not_equal(first[1:], first[:-1], out=heads[max(start, 1) : stop])
        _rank(array, heads, ranks, start, stop)
        yield 1 / rounds
    step = 1
    for number in range(1, rounds):
        any_left = False
        start = 0
        while start < count:
            stop = _window_end(heads, start, count)
            any_left |= _sort_window(array, heads, ranks, start, stop, step)
            start = stop
            yield (number + start / count) / rounds
        if not any_left:
            break
        for start in range(0, count, _WINDOW):
            _rank(array, heads, ranks, start, min(start + _WINDOW, count))
            yield (number + 1) / rounds
        step *= 2
    return array


def _by_first_token(ids: IntArray, array: IntArray) -> Generator[int, None, None]:
    """Counting sort, window by window."""
    values = int(ids.max()) + 2
    totals = np.zeros(values, dtype=np.int64)
    for start in range(0, len(ids), _WINDOW):
        totals += np.bincount(ids[start : start + _WINDOW] + 1, minlength=values)
        yield 0
    ends = np.cumsum(totals)
    nexts = np.concatenate((np.zeros(1, dtype=ends.dtype), ends[:-1]))
    for done, start in enumerate(range(0, len(ids), _WINDOW), start=1):
        part = ids[start : start + _WINDOW].astype(np.int64) + 1
        keys = np.sort((part << _INDEX_BITS) | np.arange(len(part)))
        tokens, places = keys >> _INDEX_BITS, keys & ((1 << _INDEX_BITS) - 1)
        runs = np.searchsorted(tokens, tokens)  # where each token's run begins
        array[nexts[tokens] + np.arange(len(part)) - runs] = places + start
        nexts += np.bincount(part, minlength=values)
        yield done


def _window_end(heads: NDArray[np.bool_], start: int, count: int) -> int:
    """The end of a window of whole groups that begins at `start`: about `_WINDOW` places, or one longer group."""
    stop = start + _WINDOW
    if stop >= count:
        return count
    inside = np.flatnonzero(heads[start + 1 : stop + 1])
    if len(inside):
        return start + 1 + int(inside[-1])
    return stop + 1 + int(np.argmax(heads[stop + 1 :]))


def _sort_window(array: IntArray, heads: NDArray[np.bool_], ranks: IntArray, start: int, stop: int, step: int) -> bool:
    """Sort the groups of a window by the rank `step` tokens on. Ranks stay as they were. Whether any group is left."""
    alone = heads[start:stop] & heads[start + 1 : stop + 1]
    active = np.flatnonzero(~alone)
    if not len(active):
        return False
    places = array[start + active]
    groups = np.cumsum(heads[start + active], dtype=np.int64) - 1
    onward = places.astype(np.int64) + step
    second = np.zeros(len(places), dtype=np.int64)
    inside = onward < len(array)
    second[inside] = ranks[onward[inside]].astype(np.int64) + 1
    # One sort of whole numbers: group, second key, order before. A window has 2^18 places, or a single group.
    bits = max(int(len(places) - 1).bit_length(), 1)
    keys = np.sort((((groups << _INDEX_BITS) | second) << bits) | np.arange(len(places)))
    array[start + active] = places[keys & ((1 << bits) - 1)]
    keys >>= bits
    fresh = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    heads[start + active] = fresh
    return True


def _rank(array: IntArray, heads: NDArray[np.bool_], ranks: IntArray, start: int, stop: int) -> None:
    """Give each place of a window the index of its group's first place."""
    index = np.arange(start, stop, dtype=np.int32)
    index[~heads[start:stop]] = 0
    if not heads[start]:  # the group began before
        index[0] = ranks[array[start - 1]]
    ranks[array[start:stop]] = np.maximum.accumulate(index)


def find_places(ids: IntArray, array: IntArray, pattern: Sequence[int]) -> tuple[int, int]:
    """Where in `array` the places stand whose first tokens are `pattern`: [first, last + 1).

    Args:
        pattern: 1 to `DEPTH` tokens.
    """
    wanted, size = list(pattern), len(pattern)

    def bound(above: bool) -> int:
        low, high = 0, len(array)
        while low < high:
            middle = (low + high) // 2
            place = max(int(array[middle]), 0)  # a damaged file must not turn into an endless or wild search
            here = ids[place : place + size].tolist()
            if here < wanted or (above and here == wanted):
                low = middle + 1
            else:
                high = middle
        return low

    return bound(above=False), bound(above=True)
