"""From rounds to figures, and from figures to their event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from lab.decoding.speculative.figures import Tally
from lab.decoding.speculative.rounds import Round
from lab.events.speculative import SpeculativeFigures


def take_round(tally: Tally, done: Round) -> None:
    """Count one round."""
    tally.take(
        done.verdict,
        done.proposal.tree,
        emitted=len(done.token_ids),
        draft_ms=done.draft_ms,
        verify_ms=done.verify_ms,
        judge_ms=done.judge_ms,
    )


def figures_event(tally: Tally, plain_ms: Iterable[float]) -> SpeculativeFigures:
    """The figures so far."""
    return SpeculativeFigures(**asdict(tally.figures(plain_ms)))
