"""Early exit: the target's own first layers, its last norm and its head, draft.

The draft shares the target's cache: keys and values of the first layers are the same for both, so nothing is computed
for the text so far. What a proposal appends to them is taken back before the target verifies.

Source: LayerSkip (Elhoushi et al. 2024, arXiv 2404.16710). A model not trained for it agrees with its own early layers
only now and then; the acceptance shows it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lab.decoding import cache_layout
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.sampling import drawn
from lab.errors import BadInput


class EarlyExitDraft:
    """Proposes what the target's first layers would say.

    Args:
        layers: how many of them, at least 1; at most all, which is checked where the target is known.

    Raises:
        BadInput: `layers` below 1.
    """

    name = "early_exit"
    wants_features = False

    def __init__(self, layers: int) -> None:
        if layers < 1:
            raise BadInput(f"The draft has {layers} layers.", remedy="Give at least 1.")
        self._layers = layers

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        """At most `count` tokens, fewer after an end token. Must run inside inference mode.

        Raises:
            BadInput: the target has fewer layers.
            ModelError: the target's pass cannot run a part of its layers.
        """
        cache = sight.target.cache
        if self._layers > len(cache.layers):
            raise BadInput(
                f"The draft would be the first {self._layers} layers, and the model has {len(cache.layers)}.",
                remedy=f"Choose 1 to {len(cache.layers)}.",
            )
        if count < 1 or not sight.ids:
            return Proposal.chain(())
        ids = list(sight.ids)
        tokens: list[int] = []
        drawn_from: list[Tensor | None] = []
        before = cache_layout.mark(cache)
        try:
            while len(tokens) < count:
                # What the cache holds, not what it should: a run may leave rejected tokens in it on purpose.
                start = cache_layout.stored_positions(cache.layers[0])
                rows = sight.target.rows((ids[-1],), start, layers=self._layers)
                logits = rows.logits[-1]
                if distribution.greedy:
                    token, q = int(distribution.processed(logits, ids).argmax()), None
                else:
                    q = distribution.of(logits, ids)
                    if not bool(torch.isfinite(q.sum())):  # NaN: nothing can be drawn, the target goes on alone
                        break
                    token = drawn(q, sight.generator)
                tokens.append(token)
                drawn_from.append(q)
                if token in distribution.end_token_ids:
                    break
                ids.append(token)
        finally:
            cache_layout.keep(cache, before, ())
        return Proposal.chain(tokens, drawn_from)

    def settle(self, sight: Sight, accepted: int) -> None:
        """Nothing to put right: the cache is the target's, as it was."""
        del sight, accepted

    def cache_bytes(self) -> tuple[int, int]:
        """No cache of its own."""
        return 0, 0

    def memory_bytes(self) -> int:
        """Nothing beyond the target."""
        return 0
