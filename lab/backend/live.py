"""One run from its request to its end, and the figures that are measured about it."""

from __future__ import annotations

import itertools
import json
import resource
import secrets
import sys
from dataclasses import dataclass, field

from lab.backend.card import run_card
from lab.backend.log import RunLog
from lab.backend.protocol import RunRequest
from lab.backend.source import Placement
from lab.events import ModelFacts, RunCard, RunFinished
from lab.experiments.base import Experiment, ExperimentParams, Outcome, RunContext, RunGenerator, Runner

_order = itertools.count()


@dataclass(eq=False, kw_only=True)
class LiveRun:
    """A run that waits or takes turns. Owned by the scheduler; times in seconds.

    Attributes:
        card: None until the model's weights are on this machine.
        key: the card's key, or the request's own while there is no card.
        turn_s: accumulated time by which turns are given; a newcomer's starts at the others' least.
        compute_s: time in its own slices.
        beside: other runs that had slices while this one lived.
        cancelled: its last reader has left.
    """

    request: RunRequest
    experiment: Experiment
    runner: Runner
    params: ExperimentParams
    facts: ModelFacts
    placement: Placement
    card: RunCard | None
    key: str
    log: RunLog
    context: RunContext | None = None
    generator: RunGenerator | None = None
    cancelled: bool = False
    position: int | None = None
    started_at: float | None = None
    turn_s: float = 0.0
    compute_s: float = 0.0
    longest_s: float = 0.0
    slices: int = 0
    beside: set[str] = field(default_factory=set)
    order: int = field(default_factory=lambda: next(_order))

    @property
    def id(self) -> str:
        """Names the run for `inspect`."""
        return self.log.run_id

    @property
    def model_key(self) -> tuple[str, str, str]:
        """Which loaded model it needs."""
        return self.facts.id, self.placement.dtype, self.placement.device

    def count_slice(self, seconds: float) -> None:
        """Add one slice."""
        self.turn_s += seconds
        self.compute_s += seconds
        self.longest_s = max(self.longest_s, seconds)
        self.slices += 1

    def finished(self, outcome: Outcome) -> RunFinished:
        """The final event of a run that ended by itself."""
        return RunFinished(
            token_ids=outcome.token_ids,
            text=outcome.text,
            compute_ms=self.compute_s * 1e3,
            slices=self.slices,
            longest_slice_ms=self.longest_s * 1e3,
            ran_beside=len(self.beside),
            peak_bytes=peak_resident_bytes(),
        )

    def name(self, facts: ModelFacts) -> RunCard:
        """Give a run its card, now that its model's weights are here."""
        self.facts = facts
        self.card = run_card(self.experiment.name, facts, self.placement, self.params)
        self.key = self.card.key()
        return self.card


def new_run_id() -> str:
    """A name for a run that nobody can guess: it gives access to the run's state."""
    return secrets.token_hex(8)


def request_key(request: RunRequest, params: ExperimentParams) -> str:
    """Identity of a run whose card is not known yet."""
    body = [request.experiment, request.model, request.dtype, request.device, params.model_dump(mode="json")]
    body += [params.file_hashes()]
    return "request:" + json.dumps(body, sort_keys=True)


def peak_resident_bytes() -> int:
    """The process's peak resident memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
