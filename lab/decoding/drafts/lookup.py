"""Prompt look-up: the text so far proposes how it goes on.

The last tokens of the text are looked for earlier in it, the longest run first, and what followed them there is
proposed. Source: prompt look-up decoding (Saxena 2023), as in transformers' `PromptLookupCandidateGenerator`: of
several matches the first from the left is taken.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.errors import BadInput

MAX_NGRAM = 64


class LookupDraft:
    """Proposes what followed the last tokens where they first occurred.

    Args:
        ngram: the longest run of last tokens to look for, 1 to 64.
        end_token_ids: a proposal is cut before the first of these.

    Raises:
        BadInput: `ngram` out of range.
    """

    name = "lookup"
    wants_features = False

    def __init__(self, ngram: int, end_token_ids: Iterable[int] = ()) -> None:
        if not 1 <= ngram <= MAX_NGRAM:
            raise BadInput(f"ngram is {ngram}.", remedy=f"Give 1 to {MAX_NGRAM} tokens.")
        self._ends = frozenset(end_token_ids)
        self._seen: list[int] = []
        # first[n - 1]: for each run of n tokens that occurred, where it first began.
        self._first: list[dict[tuple[int, ...], int]] = [{} for _ in range(ngram)]

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        """At most `count` tokens; q is one-hot. Nothing is drawn."""
        del distribution
        ids = sight.ids
        self._index(ids)
        found = self.find(ids)
        if found is None or count < 1:
            return Proposal.chain(())
        size, start = found
        tokens = _before_end(ids[start + size : start + size + count], self._ends)
        return Proposal.chain(tokens, source=f"{size}-gram at position {start}" if tokens else "")

    def find(self, ids: Sequence[int]) -> tuple[int, int] | None:
        """The longest run of last tokens that occurred before, and where first; None if there is none.

        `ids` must be indexed. A run's own place at the end of the text has nothing after it and is no match; a
        match may overlap it.
        """
        for size in range(min(len(self._first), len(ids) - 1), 0, -1):
            start = self._first[size - 1].get(tuple(ids[-size:]))
            if start is not None and start + size < len(ids):
                return size, start
        return None

    def settle(self, sight: Sight, accepted: int) -> None:
        """Nothing to put right: only tokens that stand are indexed."""
        del sight, accepted

    def cache_bytes(self) -> tuple[int, int]:
        """No cache."""
        return 0, 0

    def memory_bytes(self) -> int:
        """Bytes of the index, roughly: the tables and their keys."""
        return sum(
            sys.getsizeof(table) + len(table) * sys.getsizeof((0,) * size)
            for size, table in enumerate(self._first, start=1)
        )

    def _index(self, ids: Sequence[int]) -> None:
        """Take in the tokens that are new; start again if the text is another one."""
        known = len(self._seen)
        if list(ids[:known]) != self._seen:
            known = 0
            self._seen.clear()
            for table in self._first:
                table.clear()
        self._seen.extend(ids[known:])
        for size, table in enumerate(self._first, start=1):
            for start in range(max(0, known - size + 1), len(ids) - size + 1):
                table.setdefault(tuple(ids[start : start + size]), start)


def _before_end(tokens: Sequence[int], ends: frozenset[int]) -> Sequence[int]:
    for index, token in enumerate(tokens):
        if token in ends:
            return tokens[:index]
    return tokens
