"""One visitor, inside a real kernel: a page's widgets, then runs over HTTP, timed as the page would see them."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.backend.connect import connect
from lab.backend.protocol import Backend, RunRequest
from lab.errors import Busy
from lab.events import Event, Loading, Proof, Queued, RunFinished, RunStarted

if TYPE_CHECKING:
    from widgets.page import Dashboard


@dataclass(frozen=True)
class Visit:
    """One run as a visitor had it.

    Attributes:
        asked, first, ended: seconds on the machine's monotonic clock; `first` is the first event of the run's own work:
            what lies before it is waiting for a turn.
        refused: times it was told to come back.
        recorded: whether it was a finished run with the same card.
        end: the name of the final event.
        digest: of the tokens, the text, and how many events of each kind there were.
        verdict: of the proof.
    """

    name: str
    asked: float
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
    first, events = 0.0, []
    for event in stream:
        events.append(event)
        if not isinstance(event, RunStarted | Queued | Loading):
            first = first or time.monotonic()
    recorded = any(isinstance(event, RunStarted) and event.recorded for event in events)
    return Visit(experiment, asked, first, time.monotonic(), refused, recorded, *said(events))


def said(events: Sequence[Event]) -> tuple[str, str, str]:
    """`end`, `digest` and `verdict` of a whole run."""
    kinds = Counter(event.event for event in events if not isinstance(event, Queued | Loading | RunStarted))
    kinds.pop("progress", None)  # how often it is told depends on the time
    verdict = next((event.verdict for event in events if isinstance(event, Proof)), "")
    end = events[-1]
    told = (list(end.token_ids or ()), end.text) if isinstance(end, RunFinished) else ("", "")
    digest = hashlib.sha256(json.dumps([told, sorted(kinds.items())]).encode()).hexdigest()[:16]
    return end.event, digest, verdict


def shown(page: Dashboard) -> tuple[str, str, str]:
    """What the page's own live run said, waited for."""
    session = page.session
    while session.replaying or session.recording() is None:
        if session.trouble is not None:
            return session.trouble.message, "", ""
        time.sleep(0.05)
    return said(session.events)


def visits(runs: list[tuple[str, dict[str, Any]]]) -> str:
    """Make the runs one after another; the `Visit`s as JSON."""
    backend = connect()
    made = [vars(visit(backend, experiment, params)) for experiment, params in runs]
    backend.close()
    return json.dumps(made)
