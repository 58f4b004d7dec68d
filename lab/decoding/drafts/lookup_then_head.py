"""Look-up first, the head where nothing matches.

Look-up is free and right where the text repeats; the head guesses elsewhere. The features of rounds that look-up
served are kept, so that the head catches up in one pass when its turn comes.
"""

from __future__ import annotations

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Draft, Proposal, Sight
from lab.decoding.drafts.eagle_draft import EagleDraft


class LookupThenHead:
    """A `Draft` made of two.

    Args:
        lookup: proposes from the text so far, or nothing.
        head: proposes where `lookup` does not.
    """

    name = "lookup_eagle"
    wants_features = True

    def __init__(self, lookup: Draft, head: EagleDraft) -> None:
        self._lookup, self._head = lookup, head

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        """What look-up finds, else what the head drafts."""
        self._head.hear(sight)
        found = self._lookup.propose(sight, count, distribution)
        return found if found.token_ids else self._head.propose(sight, count, distribution)

    def settle(self, sight: Sight, accepted: int) -> None:
        self._lookup.settle(sight, accepted)
        self._head.settle(sight, accepted)

    def cache_bytes(self) -> tuple[int, int]:
        return self._head.cache_bytes()
