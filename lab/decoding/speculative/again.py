"""The same prefix again and again: rounds that start anew, for the exactness trial.

Each draw runs the real rounds: the draft proposes, the target's p is judged against with fresh random numbers, the
caches are put right. The target's logits after a text that came before are remembered: the model is deterministic, so
the same text with the same cache has the same logits. Where the mistake is in the cache itself, every pass is computed
whose cache can be wrong, and with it those that filled it; where the draft reads the target's cache, every pass is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lab.decoding import cache_layout
from lab.decoding.drafts.base import Proposal
from lab.decoding.speculative.rounds import Round, Rounds
from lab.decoding.tree import Tree
from lab.errors import ModelError

MEMORY_BYTES = 320 * 2**20
"""Logits and features remembered at most."""

PAIR = 2
PROPOSED = 2
"""Tokens proposed in the first round of a draw: so the second token of a pair is judged, too."""


@dataclass
class AgainRounds(Rounds):
    """Rounds from one prefix. `sight.ids` is the prefix when it is made, and the target's cache holds all of it but
    the last token.

    Attributes:
        passes: target passes that were computed.
        remembered: rows of logits that were not.
    """

    passes: int = 0
    remembered: int = 0
    _memory: OrderedDict[tuple[int, ...], tuple[Tensor, Tensor | None]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._prefix = len(self.sight.ids)
        self._start = self.position
        self._features = self.sight.features
        self._mark = cache_layout.mark(self.runner.cache)
        self._computes = self.draft.name == "early_exit"
        self._leaves = self.mistake == "cache_not_cropped"
        self._owed: Proposal | None = None

    def pair(self) -> Generator[None, None, tuple[int, int]]:
        """Draw one pair of tokens after the prefix."""
        self._rewind()
        ids = self.sight.ids
        while (have := len(ids) - self._prefix) < PAIR:
            yield from self._pair_round(PROPOSED - have)
        return ids[self._prefix], ids[self._prefix + 1]

    def _pair_round(self, proposed: int) -> Generator[None, None, Round]:
        return (yield from self.round(proposed, proposed + 1))

    def _rewind(self) -> None:
        with torch.inference_mode():
            del self.sight.ids[self._prefix :]
            self.sight.features = self._features
            cache_layout.keep(self.runner.cache, self._mark, ())
            self.position, self._owed = self._start, None
            rewind: Any = getattr(self.draft, "rewind", None)
            if rewind is not None:
                rewind(self.sight)
            elif self.draft.cache_bytes()[1] and not self.draft.wants_features:
                raise ModelError(
                    f"The draft {self.draft.name!r} cannot go back to an earlier text, so the trial cannot run it.",
                    remedy="Choose another draft.",
                )

    def _verify(self, proposal: Proposal) -> tuple[Tensor, Tensor | None]:
        if self._computes:
            self.passes += 1
            return super()._verify(proposal)
        so_far = tuple(self.sight.ids[self._prefix :])
        if self._leaves and so_far:
            return self._behind_what_was_left(proposal)
        tokens, tree = proposal.token_ids, proposal.tree
        keys = [so_far] + [(*so_far, *(tokens[i] for i in tree.path(row))) for row in range(len(tokens))]
        if any(key not in self._memory for key in keys):
            self._compute(so_far, proposal, keys)
        else:
            self.remembered += len(keys)
        if self._leaves:
            self._owed = proposal
        found = [self._memory[key] for key in keys]
        for key in keys:
            self._memory.move_to_end(key)
        self._forget_oldest()
        logits = torch.stack([row for row, _ in found])
        features = [feature for _, feature in found if feature is not None]
        return logits, torch.stack(features) if self.draft.wants_features and features else None

    def _behind_what_was_left(self, proposal: Proposal) -> tuple[Tensor, Tensor | None]:
        """The pass after one whose tokens all stay in the cache; what it owes to the cache goes through with it."""
        owed, self._owed = self._owed, None
        self.passes += 1
        if owed is not None and not (owed.tree.is_chain and proposal.tree.is_chain):
            # In one tree the branches would not see each other; in a cache that was left so, later tokens see all.
            tree = Tree((-1, *(parent + 1 for parent in owed.tree.parents)))
            self.runner.rows((self.sight.ids[self._prefix - 1], *owed.token_ids), self._start, tree=tree)
            owed = None
        if owed is None:
            return super()._verify(proposal)
        count = 1 + len(proposal.token_ids)
        fed = (self.sight.ids[self._prefix - 1], *owed.token_ids, self.sight.ids[-1], *proposal.token_ids)
        rows = self.runner.rows(fed, self._start)
        features = rows.features[-count:] if rows.features is not None and self.draft.wants_features else None
        return rows.logits[-count:], features

    def _compute(self, so_far: tuple[int, ...], proposal: Proposal, keys: list[tuple[int, ...]]) -> None:
        """One pass over what follows the prefix; the cache is left as it was."""
        lead = [self.sight.ids[self._prefix - 1], *so_far]
        parents = (*range(-1, len(lead) - 1), *(parent + len(lead) for parent in proposal.tree.parents))
        tree = Tree(parents)
        rows = self.runner.rows((*lead, *proposal.token_ids), self._start, tree=None if tree.is_chain else tree)
        cache_layout.keep(self.runner.cache, self._mark, ())
        self.passes += 1
        first = len(lead) - 1
        for offset, key in enumerate(keys):
            feature = None if rows.features is None else rows.features[first + offset].clone()
            self._memory[key] = (rows.logits[first + offset].clone(), feature)

    def _forget_oldest(self) -> None:
        size = next(iter(self._memory.values()))[0].nbytes
        while len(self._memory) * size > MEMORY_BYTES:
            self._memory.popitem(last=False)

    def _crop(self, since: cache_layout.Mark, done: Round) -> None:
        if self._computes or self._leaves:
            super()._crop(since, done)
        else:
            self.position += len(self._kept_rows(done))  # nothing was left in the cache
