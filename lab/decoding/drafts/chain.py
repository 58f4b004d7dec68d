"""Drafting with a model that has its own pass and cache: another model, or the target's own weights packed.

A round: catch up on what the text gained since (one pass over those few tokens), then one token after the other. The
last proposed token does not go through the draft; if it is accepted, it is among those to catch up on next time, so
its keys and values are never missing (the classic fault after full acceptance).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from lab.decoding import cache_layout
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Proposal, Sight
from lab.decoding.passes import Pass
from lab.decoding.sampling import drawn

FEW = 16
"""Tokens to catch up on in one pass of rows; more go through in chunks, as a prompt does."""


class ModelChain:
    """A chain of tokens from a model with its own pass.

    Args:
        runner: the draft model's pass, its cache empty, with room for the whole run.
        vocab: of the target. Logits are cut to it, or filled up with -inf (a padded vocabulary). None: as they are.
        known: tokens that the draft model has embeddings for: others, which no text holds, are fed as token 0.
        context: positions the draft model can take; nothing is proposed beyond. None: no limit.
    """

    def __init__(
        self, runner: Pass, *, vocab: int | None = None, known: int | None = None, context: int | None = None
    ) -> None:
        self.runner = runner
        self._vocab, self._known, self._context = vocab, known, context
        self._held: list[int] = []

    def warm(self, ids: Sequence[int]) -> Generator[None, None, None]:
        """Send the prompt through, all but its last token, pausing where the pass can. `propose` then has one to go.

        Enters and leaves inference mode between the pauses. Optional: `propose` does it in one go otherwise.
        """
        whole = [*ids[:-1]][: self._context]
        while len(self._held) < len(whole):
            start = len(self._held)
            piece = whole[start : start + self.runner.chunk]
            yield from self.runner.sliced(self._fed(piece), start, last=False, attention=False)
            self._held += piece
            yield

    def propose(self, sight: Sight, count: int, distribution: Distribution) -> Proposal:
        """At most `count` tokens, fewer at an end token or at the end of the draft's context. In inference mode."""
        if self._context is not None:
            count = min(count, self._context - len(sight.ids) + 1)
        if count < 1 or not sight.ids:
            return Proposal.chain(())
        ids = list(sight.ids)
        logits = self._caught_up(ids)
        self._mark = cache_layout.mark(self.runner.cache)
        self._marked = len(self._held)
        tokens: list[int] = []
        drawn_from: list[Tensor | None] = []
        while True:
            token, q = self._drawn(logits, ids, distribution, sight.generator)
            if token is None:
                return Proposal.chain(tokens, drawn_from)
            tokens.append(token)
            drawn_from.append(q)
            if len(tokens) == count or token in distribution.end_token_ids:
                return Proposal.chain(tokens, drawn_from)
            ids.append(token)
            logits = self._one(token)

    def settle(self, sight: Sight) -> None:
        """Forget what is not in `sight.ids`: of the proposed tokens, those that stand are kept."""
        if len(self._held) < len(sight.ids) and self._held == sight.ids[: len(self._held)]:
            return
        # The text's last token always goes through anew, for its logits.
        most = min(len(self._held), len(sight.ids) - 1)
        stand = self._marked
        while stand < most and self._held[stand] == sight.ids[stand]:
            stand += 1
        cache_layout.keep(self.runner.cache, self._mark, range(stand - self._marked))
        del self._held[stand:]

    def rewind(self, ids: Sequence[int]) -> None:
        """The text is `ids` again, shorter than it was: keep what is common, all but the last token of `ids`.

        Raises:
            ModelError: the cache has a sliding window, which cannot go back.
        """
        same = 0
        while same < min(len(self._held), len(ids) - 1) and self._held[same] == ids[same]:
            same += 1
        cache_layout.shorten(self.runner.cache, same)
        del self._held[same:]

    def cache_bytes(self) -> tuple[int, int]:
        """Bytes that its cache holds, and positions."""
        return cache_layout.total_bytes(self.runner.cache)[0], len(self._held)

    def _caught_up(self, ids: list[int]) -> Tensor:
        """The logits after `ids`, all of which the cache then holds."""
        missing = ids[len(self._held) :]
        if len(missing) == 1:
            return self._one(missing[0])
        start = len(self._held)
        if len(missing) <= FEW:
            logits = self.runner.rows(self._fed(missing), start).logits[-1]
            self._held += missing
            return self._shaped(logits)
        for begin in range(start, len(ids), self.runner.chunk):
            piece = ids[begin : begin + self.runner.chunk]
            last = begin + len(piece) == len(ids)
            row = self.runner(self._fed(piece), begin, last=last, attention=False)
            self._held += piece
        assert row is not None  # noqa: S101 - asked for with last=True
        return self._shaped(row)

    def _one(self, token: int) -> Tensor:
        row = self.runner(self._fed([token]), len(self._held), last=True, attention=False)
        assert row is not None  # noqa: S101 - asked for with last=True
        self._held.append(token)
        return self._shaped(row)

    def _fed(self, ids: Sequence[int]) -> list[int]:
        return [i if self._known is None or i < self._known else 0 for i in ids]

    def _shaped(self, logits: Tensor) -> Tensor:
        if self._vocab is None or logits.shape[-1] == self._vocab:
            return logits
        missing = max(0, self._vocab - logits.shape[-1])
        return torch.nn.functional.pad(logits[: self._vocab], (0, missing), value=-torch.inf)

    @staticmethod
    def _drawn(
        logits: Tensor, ids: list[int], distribution: Distribution, generator: torch.Generator
    ) -> tuple[int | None, Tensor | None]:
        """The next token and what it was drawn from; no token where the draft's logits are no numbers."""
        if distribution.greedy:
            return int(distribution.processed(logits, ids).argmax()), None
        q = distribution.of(logits, ids)
        if not bool(torch.isfinite(q.sum())):
            return None, None
        return drawn(q, generator), q
