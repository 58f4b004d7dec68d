"""What a store answers: where the last tokens of a text occur in it, and what followed there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from lab.decoding.drafts.store.file import StoreFacts
from lab.decoding.drafts.store.suffix_array import IntArray, find_places

LONGEST = 16
MOST_PLACES = 1 << 16
"""Of more places every second, third, ... is counted, so that an answer takes a few milliseconds."""


@dataclass(frozen=True)
class Match:
    """The last tokens of a text found in the store.

    Attributes:
        length: how many tokens match.
        places: how often they occur there.
        after: (place,) where each continuation begins, in the order of the array; at most `MOST_PLACES`.
    """

    length: int
    places: int
    after: IntArray


@dataclass(frozen=True)
class Store:
    """Token ids and their suffix array, usually mapped from disk.

    Attributes:
        ids: (token,) int32; -1 between two documents.
        array: (token,) int32: all places, sorted by the tokens that follow.
        notes: what a person should know (files passed over, not saved), in words.
        on_disk: whether the arrays are mapped from a file.
    """

    ids: IntArray
    array: IntArray
    facts: StoreFacts
    notes: tuple[str, ...] = ()
    on_disk: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays; mapped ones take memory only where they are read, and can be dropped."""
        return int(self.ids.nbytes + self.array.nbytes)

    def match(
        self, text: Sequence[int], *, shortest: int = 2, longest: int = LONGEST, ends: Collection[int] = ()
    ) -> Match | None:
        """The longest suffix of `text` that occurs in the store with a token after it; None if there is none.

        Args:
            text: token ids, the newest last.
            shortest: tokens that must match at least.
            longest: tokens to match at most; at most 16.
            ends: tokens that are no continuation.
        """
        tail = [int(token) for token in text[-min(longest, LONGEST) :]]
        best: Match | None = None
        # What occurs with its last n tokens occurs with fewer, so the length itself is searched by halves.
        low, high = shortest, len(tail)
        while low <= high:
            size = (low + high) // 2
            found = self._with_continuation(tail[-size:], ends)
            if found is None:
                high = size - 1
            else:
                best, low = found, size + 1
        return best

    def children(self, after: IntArray, ends: Collection[int] = ()) -> list[tuple[int, IntArray]]:
        """The tokens at these places, the most frequent first (of equals the lower id), each with its places.

        Args:
            after: (place,) places in the text; those beyond the end, at a border or at one of `ends` count for nothing.
        """
        inside, tokens = self._usable(after, ends)
        order = np.argsort(tokens, kind="stable")
        values, starts = np.unique(tokens[order], return_index=True)
        groups = np.split(inside[order], starts[1:]) if len(values) else []
        pairs = zip(values.tolist(), groups, strict=True)
        return sorted(pairs, key=lambda pair: (-len(pair[1]), pair[0]))

    def _with_continuation(self, pattern: Sequence[int], ends: Collection[int]) -> Match | None:
        first, stop = find_places(self.ids, self.array, pattern)
        if first == stop:
            return None
        step = -(-(stop - first) // MOST_PLACES)
        after = self.array[first:stop:step] + len(pattern)
        if not len(self._usable(after, ends)[0]):
            return None
        return Match(len(pattern), stop - first, after)

    def _usable(self, after: IntArray, ends: Collection[int]) -> tuple[IntArray, IntArray]:
        """The places where a token stands that may be proposed, and those tokens."""
        inside = after[(after >= 0) & (after < len(self.ids))]
        tokens = self.ids[inside]
        usable = (tokens >= 0) & (tokens < self.facts.vocab)
        for end in ends:
            usable &= tokens != end
        return inside[usable], tokens[usable]
