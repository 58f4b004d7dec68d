"""One visitor, inside a real kernel: a page's widgets, then runs over HTTP, timed as the page would see them."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any

from lab.backend.connect import connect
from lab.backend.protocol import Backend, RunRequest
from lab.errors import Busy
from lab.events import Loading, Proof, Queued, RunFinished, RunStarted


@dataclass(frozen=True)
class Visit:
    """One run as a visitor had it.

    Attributes:
        asked, began, first, ended: seconds on the machine's monotonic clock; `first` is the first event of the run's
            own work, `began` its start.
        refused: times it was told to come back.
        recorded: whether it was a finished run with the same card.
        end: the name of the final event.
        digest: of the tokens, the text, and how many events of each kind there were.
        verdict: of the proof.
    """

    name: str
    asked: float
    began: float
    first: float
    ended: float
    refused: int
    recorded: bool
    end: str
    digest: str
    verdict: str


def visit(backend: Backend, experiment: str, params: dict[str, Any], *, fresh: bool = False) -> Visit:
    """Run one experiment to its end, waiting where the lab says to."""
    asked, refused = time.monotonic(), 0
    while True:
        try:
            stream = backend.run(RunRequest(experiment=experiment, params=params, fresh=fresh))
            break
        except Busy as full:
            refused += 1
            time.sleep(full.retry_after_s)  # what the page tells its visitor to do
    began = first = 0.0
    recorded, verdict, kinds, end = False, "", {}, None
    for event in stream:
        now = time.monotonic()
        if isinstance(event, RunStarted):
            began, recorded = now, bool(event.recorded)
        elif not isinstance(event, Queued | Loading):
            first = first or now
            kinds[event.event] = kinds.get(event.event, 0) + 1
        if isinstance(event, Proof):
            verdict = event.verdict
        end = event
    assert end is not None  # noqa: S101 - a stream ends with a final event
    told = (list(end.token_ids or ()), end.text) if isinstance(end, RunFinished) else ("", "")
    kinds.pop("progress", None)  # how often it is told depends on the time
    digest = hashlib.sha256(json.dumps([told, sorted(kinds.items())]).encode()).hexdigest()[:16]
    return Visit(experiment, asked, began, first, time.monotonic(), refused, recorded, end.event, digest, verdict)


def visits(runs: list[tuple[str, dict[str, Any]]]) -> str:
    """Make the runs one after another; the `Visit`s as JSON."""
    backend = connect()
    made = [vars(visit(backend, experiment, params)) for experiment, params in runs]
    backend.close()
    return json.dumps(made)
