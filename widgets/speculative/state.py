"""What the events of a `speculative` run say so far. Live, replay and scrubbing read the same state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar, NamedTuple

from lab.events import Event
from lab.events.speculative import (
    DraftRanked,
    DraftReady,
    FirstToken,
    IdentityShown,
    Judged,
    PlainToken,
    SpeculativeFigures,
    SpeculativeRound,
    SweepPoint,
    TrialPoint,
)
from widgets.run_state import TaskState
from widgets.token_text import plain_text

OWN = ("resampled", "bonus", "plain")
"""Put in by the target."""
STANDS = ("accepted", *OWN)
PROPOSED = ("accepted", "rejected", "unjudged")
FIRST = -1
"""The round of the first new token, which is drawn from the prefill."""


class Spot(NamedTuple):
    """A token of the trace: its round (`FIRST` before any) and its row in it."""

    round: int
    row: int


@dataclass(frozen=True)
class Counts:
    """Sums over rounds.

    Attributes:
        alpha: sum over judged positions of sum min(p, q), and how many positions it is over.
        by_depth: for each depth (judged, accepted).
    """

    rounds: int
    emitted: int
    drafted: int
    judged: int
    accepted: int
    alpha: tuple[float, int]
    by_depth: tuple[tuple[int, int], ...]
    draft_ms: float
    verify_ms: float
    judge_ms: float

    @property
    def ms(self) -> float:
        """All three parts of all rounds."""
        return self.draft_ms + self.verify_ms + self.judge_ms


@dataclass
class SpeculativeState(TaskState):
    """The run, indexed for the pictures. Everything here comes from an event."""

    TASKS: ClassVar[tuple[str, ...]] = ("decode", "sweep", "drafts", "trial")

    ready: DraftReady | None = None
    first: FirstToken | None = None
    rounds: list[SpeculativeRound] = field(default_factory=list)
    plain: list[PlainToken] = field(default_factory=list)
    figures: SpeculativeFigures | None = None
    sweep: list[SweepPoint] = field(default_factory=list)
    drafts: list[DraftRanked] = field(default_factory=list)
    identity: IdentityShown | None = None
    trial: list[TrialPoint] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Take in an event of this experiment."""
        match event:
            case DraftReady():
                self.ready = event
            case FirstToken():
                self.first = event
            case SpeculativeRound():
                self.rounds.append(event)
            case PlainToken():
                self.plain.append(event)
            case SpeculativeFigures():
                self.figures = event
            case SweepPoint():
                self.sweep.append(event)
            case DraftRanked():
                self.drafts.append(event)
            case IdentityShown():
                self.identity = event
            case TrialPoint():
                self.trial.append(event)
            case _:
                pass

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken instead of drawing."""
        return not self.param("do_sample", True)

    @property
    def steps(self) -> int:
        """What the player counts: rounds, or the points of the other tasks."""
        match self.task:
            case "sweep":
                return len(self.sweep)
            case "drafts":
                return len(self.drafts)
            case "trial":
                return len(self.trial)
            case _:
                return len(self.rounds)

    def emitted(self, upto: int) -> int:
        """New tokens that stand after round `upto`."""
        return (1 if self.first else 0) + sum(r.emitted for r in self.rounds[: upto + 1])

    def text(self, upto: int) -> str:
        """The new text after round `upto`, from the tokens that stand."""
        parts = [self.first.text if self.first else ""]
        for round_ in self.rounds[: upto + 1]:
            parts += [round_.tokens[row].text for row in reading_order(round_, dropped=False)]
        return plain_text("".join(parts).strip(" "))

    def counts(self, upto: int) -> Counts:
        """What the rounds up to `upto` come to."""
        rounds = self.rounds[: upto + 1]
        tokens = [t for r in rounds for t in r.tokens]
        judged = [t for t in tokens if t.kind in ("accepted", "rejected")]
        known = [t.alpha for t in judged if t.alpha == t.alpha]
        depths: dict[int, list[int]] = {}
        for token in judged:
            cell = depths.setdefault(token.depth, [0, 0])
            cell[0] += 1
            cell[1] += token.kind == "accepted"
        # A chain of n tokens is n deep at most; a file may say otherwise, and be asked for as many cells.
        last = min(max(depths, default=-1), max((len(r.tokens) for r in rounds), default=0) - 1)
        return Counts(
            rounds=len(rounds),
            emitted=sum(r.emitted for r in rounds),
            drafted=sum(t.kind in PROPOSED for t in tokens),
            judged=len(judged),
            accepted=sum(t.kind == "accepted" for t in judged),
            alpha=(sum(known), len(known)),
            by_depth=tuple((depths[d][0], depths[d][1]) if d in depths else (0, 0) for d in range(last + 1)),
            draft_ms=sum(r.draft_ms for r in rounds),
            verify_ms=sum(r.verify_ms for r in rounds),
            judge_ms=sum(r.judge_ms for r in rounds),
        )

    def plain_ms(self) -> float | None:
        """Median milliseconds of a step of the plain run."""
        if self.figures is not None and self.figures.plain_ms > 0:
            return self.figures.plain_ms
        times = [t.ms for t in self.plain if t.index > 0]
        return median(times) if times else None

    def token(self, spot: Spot | None) -> Judged | None:
        """The judged token at a spot; None for the first token and where there is none."""
        if spot is None or not 0 <= spot.round < len(self.rounds):
            return None
        tokens = self.rounds[spot.round].tokens
        return tokens[spot.row] if 0 <= spot.row < len(tokens) else None

    def last_of(self, index: int) -> tuple[int, Judged] | None:
        """The row and the token that the target put in at the end of a round."""
        tokens = self.rounds[index].tokens if 0 <= index < len(self.rounds) else ()
        return next(((i, t) for i, t in enumerate(tokens) if t.kind in OWN), None)

    def ranked(self, upto: int | None = None) -> list[DraftRanked]:
        """The drafts so far, the fastest first; those that could not run last.

        Args:
            upto: the last event to count; a draft is told again after each prompt, and its last event counts.
        """
        last = {draft.draft: draft for draft in self.drafts[: None if upto is None else upto + 1]}

        def key(draft: DraftRanked) -> tuple[bool, float]:
            speed = draft.figures.measured if draft.figures else None
            return bool(draft.skipped) or speed is None, -(speed or 0.0)

        return sorted(last.values(), key=key)

    def default_spot(self, upto: int) -> Spot | None:
        """What is explained when nothing is pointed at: the newest rejection, else the newest judged token."""
        for wanted in (("rejected",), ("accepted",), STANDS):
            for index in range(min(upto, len(self.rounds) - 1), -1, -1):
                rows = [i for i, t in enumerate(self.rounds[index].tokens) if t.kind in wanted]
                if rows:
                    return Spot(index, rows[0] if wanted == ("rejected",) else rows[-1])
        return Spot(FIRST, 0) if self.first else None

    def spots(self, upto: int, *, dropped: bool) -> Iterator[Spot]:
        """The trace in reading order: what was rejected or never judged stands before what replaced it.

        Args:
            dropped: whether tokens that do not stand are among them.
        """
        if self.first is not None:
            yield Spot(FIRST, 0)
        for index in range(min(upto + 1, len(self.rounds))):
            order = reading_order(self.rounds[index], dropped=dropped)
            for row in order:
                yield Spot(index, row)


def reading_order(round_: SpeculativeRound, *, dropped: bool) -> list[int]:
    """The rows of a round as they are read: each rejected one before the token that stands in its place.

    Args:
        dropped: whether tokens that do not stand are among them.
    """
    tokens = round_.tokens
    rejected = [i for i, t in enumerate(tokens) if t.kind == "rejected"] if dropped else []
    order: list[int] = []
    for row, token in enumerate(tokens):
        if token.kind == "accepted":
            beside = [i for i in rejected if i < row and tokens[i].depth == token.depth]
            order += [*beside, row]
            rejected = [i for i in rejected if i not in beside]
    order += rejected
    if dropped:
        order += [i for i, t in enumerate(tokens) if t.kind == "unjudged"]
    return order + [i for i, t in enumerate(tokens) if t.kind in OWN]
