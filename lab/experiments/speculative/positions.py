"""What a run keeps of each judged position, so that it can be asked for more tokens than the event shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.decoding.speculative.bars import Bars
from lab.decoding.speculative.rounds import Round

KEPT_POSITIONS = "positions"
MAX_KEPT = 4096
"""Positions kept at most; each holds at most 96 tokens with three numbers."""


@dataclass(frozen=True)
class Kept:
    """One row of a round, or its last token.

    Attributes:
        position: among the new tokens. kind: as in the event.
    """

    position: int
    token_id: int
    kind: str
    accept: float
    u: float
    bars: Bars


@dataclass
class Positions:
    """By (round, row); the row after the last proposed one is the target's own token."""

    kept: dict[tuple[int, int], Kept] = field(default_factory=dict)

    def take(self, done: Round, base: int) -> None:
        """Keep one round; `base` new tokens stood before it."""
        depths = done.proposal.tree.depths()
        for row, (token, judged) in enumerate(zip(done.proposal.token_ids, done.verdict.rows, strict=True)):
            self._keep(done, row, base + depths[row], token, judged.kind, judged.accept, judged.u)
        if done.last_stands:
            row, verdict = len(done.proposal.token_ids), done.verdict
            position = base + len(done.path)
            self._keep(done, row, position, verdict.last_token_id, verdict.last_kind, float("nan"), verdict.last_u)

    def _keep(self, done: Round, row: int, position: int, token: int, kind: str, accept: float, u: float) -> None:
        bars = done.bars[row]
        if bars is not None and len(self.kept) < MAX_KEPT:
            self.kept[done.index, row] = Kept(position, token, kind, accept, u, bars)
