"""One round of speculative decoding: propose, verify in one target pass, judge, crop, settle.

`Rounds` holds what a run is between two rounds; the loop and the exactness trial both drive it. It enters and leaves
inference mode between its pauses.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from lab.decoding import cache_layout
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Draft, Proposal, Sight
from lab.decoding.passes import Pass
from lab.decoding.speculative.bars import Bars, bars_of
from lab.decoding.speculative.greedy import greedy_choices, judge_greedy
from lab.decoding.speculative.kernel import Mistake, RoundVerdict, RowVerdict, judge
from lab.decoding.tree import Tree

Level = Literal["off", "full"]


@dataclass
class Round:
    """What one round did. The text it leaves ends in `token_ids`.

    Attributes:
        gamma: tokens asked of the draft.
        verdict: of all that was proposed; what comes below an end token, or beyond the wanted length, is unjudged.
        last_stands: whether the target's own token stands too; not after a cut.
        token_ids: the new tokens that stand.
        ends: the last of them is an end token.
        draft_ms, verify_ms, judge_ms: own compute; recording is in none of them.
        target_positions: cache length before the round, with all that was sent through, and after cropping.
        draft_positions: likewise of the draft's own cache; 0 without one.
        target_bytes, draft_bytes: of the two caches after cropping.
        p: (n + 1, vocab) the target's distributions: row 0 follows the text before the round, row i + 1 follows
            proposed token i. None where tokens alone were wanted, or the target is greedy.
        bars: for each proposed row that was judged, then for the last token, the tokens worth showing; empty at
            level "off".
    """

    index: int
    gamma: int
    proposal: Proposal
    verdict: RoundVerdict
    last_stands: bool
    token_ids: tuple[int, ...]
    ends: bool
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    judge_ms: float = 0.0
    target_positions: tuple[int, int, int] = (0, 0, 0)
    draft_positions: tuple[int, int, int] = (0, 0, 0)
    target_bytes: int = 0
    draft_bytes: int = 0
    p: Tensor | None = None
    bars: tuple[Bars | None, ...] = ()

    @property
    def path(self) -> tuple[int, ...]:
        """The accepted rows that stand, root first."""
        return self.verdict.path


@dataclass
class Rounds:
    """A speculative run between two rounds.

    Attributes:
        position: what the target's cache holds: all of `sight.ids` but the last, unless rejected tokens are left in
            it on purpose.
        level: "off": tokens and times alone; "full": also distributions, positions and bytes.
    """

    runner: Pass
    draft: Draft
    sight: Sight
    distribution: Distribution
    mistake: Mistake = "nothing"
    level: Level = "full"
    position: int = 0
    index: int = 0

    def __post_init__(self) -> None:
        self.position = self.position or len(self.sight.ids) - 1

    @property
    def plain_greedy(self) -> bool:
        """Whether tokens alone decide: the target is greedy and no mistake is asked of the rule."""
        return self.distribution.greedy and self.mistake in ("nothing", "cache_not_cropped")

    def round(self, gamma: int, room: int) -> Generator[None, None, Round]:
        """One round of at most `room` new tokens, pausing between its parts.

        Args:
            gamma: tokens to ask of the draft, at most; one less than `room` at most, since the target adds one.

        Raises:
            ValueError: the draft breaks its contract.
        """
        asked = max(0, min(gamma, room - 1))
        before = (self.position, self.draft.cache_bytes()[1])

        began = perf_counter()
        with torch.inference_mode():
            proposal = self.draft.propose(self.sight, asked, self.distribution) if asked else Proposal.chain(())
            self._check(proposal, asked)
        draft_ms = _since(began)
        with_all = (self.position + 1 + len(proposal.token_ids), self.draft.cache_bytes()[1])
        yield None

        began = perf_counter()
        with torch.inference_mode():
            since = cache_layout.mark(self.runner.cache)
            logits, features = self._verify(proposal)
        verify_ms = _since(began)
        yield None

        began = perf_counter()
        with torch.inference_mode():
            p, verdict = self._judge(proposal, logits)
            done = self._stand(proposal, verdict, room)
            self._crop(since, done)
            self.sight.ids.extend(done.token_ids)
            if features is not None:
                kept = torch.tensor(self._kept_rows(done), device=features.device)
                self.sight.features = features.index_select(0, kept)
        done.judge_ms = _since(began)

        began = perf_counter()
        with torch.inference_mode():
            self.draft.settle(self.sight, len(self._kept_rows(done)) - 1)
        done.draft_ms = draft_ms + _since(began)
        done.gamma, done.verify_ms, done.index = gamma, verify_ms, self.index
        self.index += 1
        if self.level == "full":
            self._record(done, p, before, with_all)
        return done

    def _verify(self, proposal: Proposal) -> tuple[Tensor, Tensor | None]:
        """(n + 1, vocab) logits: after the text's last token, and after each proposed one."""
        last = self.sight.ids[-1]
        if not proposal.token_ids and not self.draft.wants_features:
            row = self.runner((last,), self.position, last=True, attention=False)
            assert row is not None  # noqa: S101 - asked for with last=True
            return row[None], None
        tree = None
        if not proposal.tree.is_chain:
            tree = Tree((-1, *(parent + 1 for parent in proposal.tree.parents)))
        rows = self.runner.rows((last, *proposal.token_ids), self.position, tree=tree)
        return rows.logits, rows.features if self.draft.wants_features else None

    def _judge(self, proposal: Proposal, logits: Tensor) -> tuple[Tensor | None, RoundVerdict]:
        befores: Sequence[Sequence[int]] = ()
        if self.distribution.looks_back:
            ids, tokens = self.sight.ids, proposal.token_ids
            befores = [ids]
            befores += [[*ids, *(tokens[i] for i in proposal.tree.path(row))] for row in range(len(tokens))]
        if self.plain_greedy:
            return None, judge_greedy(proposal, greedy_choices(self.distribution, logits, befores), logits)
        if befores:
            p = self.distribution.rows(logits, befores)
        else:
            p = torch.stack([self.distribution.of(row, ()) for row in logits])
        raw = torch.softmax(logits, dim=-1) if self.mistake == "processors_skipped" else None
        count = len(proposal.token_ids) + 1
        uniforms = torch.rand(count, generator=self.sight.generator, device=self.sight.generator.device).tolist()
        return p, judge(proposal, p, uniforms, mistake=self.mistake, p_without_processors=raw)

    def _stand(self, proposal: Proposal, verdict: RoundVerdict, room: int) -> Round:
        """Cut at the first end token and at the wanted length."""
        tokens: list[int] = []
        for row in verdict.path:
            tokens.append(proposal.token_ids[row])
            ends = tokens[-1] in self.distribution.end_token_ids
            if ends or len(tokens) == room:
                cut = _cut(proposal, verdict, len(tokens))
                return Round(0, 0, proposal, cut, False, tuple(tokens), ends)
        tokens.append(verdict.last_token_id)
        ends = tokens[-1] in self.distribution.end_token_ids
        return Round(0, 0, proposal, verdict, True, tuple(tokens), ends)

    @staticmethod
    def _kept_rows(done: Round) -> list[int]:
        """Of the rows sent through, those that stay in the cache: all tokens that stand but the last."""
        stay = done.path if done.last_stands else done.path[:-1]
        return [0, *(row + 1 for row in stay)]

    def _crop(self, since: cache_layout.Mark, done: Round) -> None:
        if self.mistake == "cache_not_cropped":
            self.position += 1 + len(done.proposal.token_ids)
            return
        kept = self._kept_rows(done)
        if len(kept) < 1 + len(done.proposal.token_ids):
            cache_layout.keep(self.runner.cache, since, kept)
        self.position += len(kept)

    def _record(self, done: Round, p: Tensor | None, before: tuple[int, int], with_all: tuple[int, int]) -> None:
        draft_bytes, draft_length = self.draft.cache_bytes()
        done.target_positions = (before[0], with_all[0], self.position)
        done.draft_positions = (before[1], with_all[1], draft_length)
        done.target_bytes, done.draft_bytes = cache_layout.total_bytes(self.runner.cache)[0], draft_bytes
        done.p = p
        with torch.inference_mode():
            done.bars = bars_of(done.proposal, done.verdict, p)

    def _check(self, proposal: Proposal, asked: int) -> None:
        count = len(proposal.token_ids)
        if count > asked:
            raise ValueError(f"the draft {self.draft.name!r} proposed {count} tokens; {asked} were asked for")


def _cut(proposal: Proposal, verdict: RoundVerdict, length: int) -> RoundVerdict:
    """The verdict with the first `length` rows of its path; what hangs below them counts for nothing."""
    path = verdict.path[:length]
    rows = tuple(
        RowVerdict("unjudged", row.p, row.q) if path[-1] in proposal.tree.path(index)[:-1] else row
        for index, row in enumerate(verdict.rows)
    )
    return replace(verdict, rows=rows, path=path)


def _since(began: float) -> float:
    return (perf_counter() - began) * 1e3
