"""Drafting with the trained head: a chain of tokens from the features of the tokens that the target has verified.

A round: the features verified last go through the head in one pass (they replace what it had guessed), which gives
the first token's distribution; then one token after the other, each from the head's own estimate. The entries made
from estimates are forgotten when the round is over.

Source: EAGLE (Li et al. 2024, arXiv 2401.15077), its chain form.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.drafts.eagle.head import EagleHead, turned
from lab.decoding.llama_layer import Norm, Scratch, TokenLayer
from lab.decoding.matvec import MatVec
from lab.decoding.products import linear_rows
from lab.decoding.room import RoomyLayer
from lab.decoding.sampling import drawn, filtered

CHUNK = 256
"""Features of a prompt that go through at a time."""


class HeadRun:
    """The head with its cache in one run: the fast way for one token, and for the few that were verified.

    Args:
        head: read only.
        capacity: positions to make room for.
    """

    def __init__(self, head: EagleHead, capacity: int) -> None:
        self._head = head
        self.cache = RoomyLayer(capacity)
        self._cos, self._sin = head.rotary(torch.arange(capacity, device=head.table.device))
        like, hidden = head.fc.weight, head.config.hidden_size
        self._scratch = scratch = Scratch(head.config, like)
        self._pair, self._fused = like.new_empty(2 * hidden), like.new_empty(hidden)
        self._logits = like.new_empty(head.output.shape[0])
        self._fc = MatVec(head.fc.weight, None, self._pair, self._fused)
        self._layer, self._norm = TokenLayer(head.layer, scratch), Norm(head.norm, scratch)
        self._output = MatVec(head.output, None, scratch.x, self._logits)

    def one(self, token: int, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Append one position: its (rows,) fp32 logits and its (hidden,) estimate. The next call writes over both."""
        position, hidden = self.cache.length, self._fused.shape[0]
        self._reach(position + 1)
        epsilon = self._head.config.rms_norm_eps
        self._pair[:hidden] = functional.rms_norm(self._head.table[token], (hidden,), eps=epsilon)
        self._pair[hidden:] = functional.rms_norm(feature, (hidden,), eps=epsilon)
        self._fc()
        self._scratch.start(self._fused, self._cos[position], self._sin[position])
        self._layer(self.cache)
        self._norm()
        self._output()
        return self._logits.float(), self._scratch.x

    def absorb(self, ids: Sequence[int], features: Tensor) -> None:
        """Append several positions whose estimates nobody wants: one layer, so keys and values are all they leave.

        Args:
            ids: x_{s+1} of each.
            features: (len(ids), hidden): f_s.
        """
        for start in range(0, len(ids), CHUNK):
            self._chunk(ids[start : start + CHUNK], features[start : start + CHUNK])

    def _chunk(self, ids: Sequence[int], features: Tensor) -> None:
        head, held, count = self._head, self.cache.length, len(ids)
        self._reach(held + count)
        embedding = head.table[torch.tensor(ids, device=head.table.device)]
        pair = torch.cat((embedding, features), dim=-1).view(count, 2, -1)
        pair = functional.rms_norm(pair, pair.shape[-1:], eps=head.config.rms_norm_eps)
        x = head.layer.input_layernorm(linear_rows(head.fc, pair.view(count, -1)))
        attention = head.layer.self_attn
        shape = 1, count, -1, attention.head_dim
        key, value = (linear_rows(m, x).view(shape).transpose(1, 2) for m in (attention.k_proj, attention.v_proj))
        self.cache.update(turned(key, self._cos[held : held + count], self._sin[held : held + count]), value)

    def _reach(self, positions: int) -> None:
        if positions > self._cos.shape[0]:
            there = torch.arange(2 * positions, device=self._cos.device)
            self._cos, self._sin = self._head.rotary(there)


class EagleDraft:
    """A `Draft` that chains the head's tokens.

    Args:
        head: of `lab.decoding.drafts.eagle.store.load_head`; shared, not changed.
        capacity: positions the run may reach.
    """

    name = "eagle"
    wants_features = True

    def __init__(self, head: EagleHead, capacity: int) -> None:
        self._head = head
        self._run = HeadRun(head, capacity)
        self._held = 0  # positions of the text whose features are in the cache
        self._first = 0  # position of the text at the cache's start
        self._waiting: list[Tensor] = []  # features not gone through yet

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        """See `Draft.propose`. Nothing is proposed before the first features came."""
        self.hear(sight)
        if count < 1 or not self._waiting:
            return Proposal.chain(())
        logits, estimate = self._caught_up(sight.ids)
        ids = list(sight.ids)
        tokens: list[int] = []
        drawn_from: list[Tensor | None] = []
        while True:
            token, q = self._drawn(logits, ids, distribution, sight.generator)
            if token is None:
                break
            tokens.append(token)
            drawn_from.append(q)
            if len(tokens) == count or token in distribution.end_token_ids:
                break
            ids.append(token)
            logits, estimate = self._run.one(token, estimate)
        self._run.cache.length = self._held - self._first
        return Proposal.chain(tokens, drawn_from)

    def settle(self, sight: Sight, accepted: int) -> None:
        """Keep the features of what was verified for the next round; the guessed entries are gone already."""
        del accepted
        self.hear(sight)

    def hear(self, sight: Sight) -> None:
        """Take in the features that are new; those heard before are passed over."""
        features = sight.features
        if features is None:
            return
        known = self._held + sum(len(part) for part in self._waiting)
        stop = len(sight.ids) - 1
        start = stop - len(features)
        if start > known or known > stop:
            # A gap, or another text: what was kept does not lead up to it.
            self._waiting.clear()
            self._run.cache.length = 0
            self._held = self._first = known = start
        if known < stop:
            self._waiting.append(features[known - start :])

    def cache_bytes(self) -> tuple[int, int]:
        """Bytes that the head's cache holds, and positions."""
        cache = self._run.cache
        keys, values = cache.keys, cache.values
        held = 0 if keys is None or values is None else keys.nbytes + values.nbytes
        return held, cache.length

    def _caught_up(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        features = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting)
        features = features.to(self._head.fc.weight.dtype)
        self._waiting.clear()
        following = ids[self._held + 1 : self._held + 1 + len(features)]
        self._held += len(features)
        if len(following) > 1:
            self._run.absorb(following[:-1], features[:-1])
        return self._run.one(following[-1], features[-1])

    def _drawn(
        self, logits: Tensor, ids: list[int], distribution: Distribution, generator: torch.Generator
    ) -> tuple[int | None, Tensor | None]:
        """The next token and what it was drawn from; no token where the rules leave the head none that it can say."""
        head = self._head
        if distribution.looks_back:
            # These rules go by token ids, so they need the whole vocabulary.
            logits = distribution.processed(head.spread(logits), ids)[head.rows]
            if bool((logits == -torch.inf).all()):
                return None, None
        if distribution.greedy:
            return int(head.rows[logits.argmax()]), None
        # What `distribution.of` gives on the whole vocabulary, where all other tokens have the logit -inf.
        q = torch.softmax(filtered(distribution.sampling.scaled(logits), distribution.sampling), dim=-1)
        return int(head.rows[drawn(q, generator)]), head.spread(q, 0.0)
