"""Retrieval: a store of texts proposes how the text goes on.

The longest run of last tokens that occurs in the store is found there, and what followed it is proposed by frequency:
as one chain, or as a tree of the most frequent continuations.

Source: REST (He et al. 2024, arXiv 2311.08252). Differences: the store is sorted here with numpy, nothing is padded
where nothing matches, and a tree keeps the most frequent rows of the whole trie.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.drafts.store.store import LONGEST, Match, Store
from lab.decoding.drafts.store.suffix_array import IntArray
from lab.decoding.tree import Tree
from lab.errors import BadInput


class RetrievalDraft:
    """Proposes from a store.

    Args:
        store: made with the target's tokenizer: ask `lab.decoding.drafts.fit.check_store`.
        tree: propose several continuations in one tree instead of one chain.
        shortest: last tokens that must match at least, 1 to 16.

    Raises:
        BadInput: `shortest` out of range.
    """

    name = "retrieval"
    wants_features = False

    def __init__(self, store: Store, tree: bool = False, shortest: int = 2) -> None:
        if not 1 <= shortest <= LONGEST:
            raise BadInput(f"shortest is {shortest}.", remedy=f"Give 1 to {LONGEST} tokens.")
        self._store, self._tree, self._shortest = store, tree, shortest

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        """At most `count` tokens (rows, in a tree); q is one-hot. Nothing is drawn. Cut before an end token."""
        if count < 1:
            return Proposal.chain(())
        ends = distribution.end_token_ids
        match = self._store.match(sight.ids, shortest=self._shortest, ends=ends)
        if match is None:
            return Proposal.chain(())
        source = f"{match.length} tokens found {match.places:,}x in {self._store.facts.name}"
        if not self._tree:
            return Proposal.chain(most_frequent_chain(self._store, match, count, ends), source=source)
        tokens, tree = most_frequent_tree(self._store, match, count, ends)
        return Proposal(tokens, (None,) * len(tokens), tree, source)

    def settle(self, sight: Sight, accepted: int) -> None:
        """Nothing to put right: the store does not change."""
        del sight, accepted

    def cache_bytes(self) -> tuple[int, int]:
        """No cache."""
        return 0, 0

    def memory_bytes(self) -> int:
        """Bytes of the store's two arrays, mapped from disk."""
        return self._store.nbytes


def most_frequent_chain(store: Store, match: Match, count: int, ends: Collection[int] = ()) -> tuple[int, ...]:
    """The most frequent next token, then the most frequent one after that among its places, and so on.

    Of tokens equally frequent the lower id is taken.
    """
    tokens: list[int] = []
    after = match.after
    while len(tokens) < count:
        children = store.children(after, ends)
        if not children:
            break
        token, places = children[0]
        tokens.append(token)
        after = places + 1
    return tuple(tokens)


def most_frequent_tree(
    store: Store, match: Match, count: int, ends: Collection[int] = ()
) -> tuple[tuple[int, ...], Tree]:
    """The `count` most frequent nodes of the trie of continuations, in order of frequency.

    A node is as frequent as its places are many, so a parent always comes before its children. Of nodes equally
    frequent those nearer to the root come first, then those found first.
    """
    tokens: list[int] = []
    parents: list[int] = []
    waiting: list[tuple[int, int, int, int, int, IntArray]] = []
    pushed = 0

    def push(after: IntArray, parent: int, depth: int) -> None:
        nonlocal pushed
        for token, places in store.children(after, ends)[: count - len(tokens)]:
            heapq.heappush(waiting, (-len(places), depth, pushed, token, parent, places))
            pushed += 1

    push(match.after, -1, 0)
    while waiting and len(tokens) < count:
        _, depth, _, token, parent, places = heapq.heappop(waiting)
        tokens.append(token)
        parents.append(parent)
        push(places + 1, len(tokens) - 1, depth + 1)
    return tuple(tokens), Tree(tuple(parents))
