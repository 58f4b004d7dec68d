"""A page's run: started, read, stopped, replayed. Knows the backend and the events, no widget.

All state is guarded by the pump's lock; whatever changes is announced with `changed`. A run is read
in a thread of its own, so the kernel's main thread stays free for its Stop button.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lab.backend.protocol import Backend, RunRequest, RunStream
from lab.errors import LabError
from lab.events import (
    Event,
    Loading,
    Progress,
    Queued,
    Recording,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunStarted,
)
from lab.events.recording import Inspection
from widgets.time_left import TimeLeft, in_words

log = logging.getLogger(__name__)

THOUSANDTHS = 1000
"""As a total it is no count of anything: a share is shown."""
Phase = Literal["idle", "queued", "loading", "running", "stopping", "done", "failed", "stopped"]
ACTIVE: frozenset[Phase] = frozenset({"queued", "loading", "running", "stopping"})


@dataclass
class Trouble:
    """An error as the page shows it."""

    message: str
    remedy: str = ""
    code: str = "error"

    @classmethod
    def of(cls, error: LabError) -> Trouble:
        """An error meant for a person."""
        return cls(error.message, error.remedy, error.code)


class Session:
    """At most one run at a time, and what is known of it.

    Args:
        lock: held while any of this changes.
        on_event: takes each event in order, with the lock held; `None` first, when a new run begins.
        changed: called after each change, from any thread.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        lock: threading.RLock,
        on_event: Callable[[Event | None], None],
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = lock
        self._on_event = on_event
        self._changed = changed
        self._clock = clock
        self._pace = TimeLeft()
        self._stream: RunStream | None = None
        self._turn = 0
        self.phase: Phase = "idle"
        self.note = ""
        self.stage = ""
        self.fraction: float | None = None
        self.events: list[Event] = []
        self.inspections: list[Inspection] = []
        self.trouble: Trouble | None = None
        self.replaying = False

    @property
    def started(self) -> RunStarted | None:
        """The start of the run on screen."""
        first = self.events[0] if self.events else None
        return first if isinstance(first, RunStarted) else None

    @property
    def recorded(self) -> str:
        """ "" for a live run, else when it was recorded."""
        return self.started.recorded if self.started else ""

    def recording(self) -> Recording | None:
        """The run on screen as a recording, once it has ended."""
        with self._lock:
            if not self.events or self.phase in ACTIVE:
                return None
            return Recording(tuple(self.events), tuple(self.inspections))

    def show(self, recording: Recording) -> None:
        """Put a recorded run on screen."""
        with self._lock:
            self._begin()
            self.replaying = True
            self.inspections = list(recording.inspections)
            for event in recording.events:
                self._take(event)
        self._changed()

    def run(self, backend: Callable[[], Backend], request: Callable[[Backend], RunRequest]) -> None:
        """Start a run; the picture on screen stays until its first event comes. A run that lives is given up.

        Args:
            backend, request: called in the reading thread, in this order.
        """
        self.stop()
        with self._lock:
            self._turn += 1
            turn = self._turn
            self.phase, self.note, self.fraction, self.trouble = "queued", "starting", None, None
        self._changed()
        threading.Thread(target=self._read, args=(turn, backend, request), name="lab-run", daemon=True).start()

    def stop(self) -> None:
        """Give the living run up, if there is one. What it showed stays."""
        with self._lock:
            stream = self._stream
            if self.phase not in ACTIVE:
                return
            self.phase, self.note = "stopping", "stopping"
            if stream is None:  # not begun yet: its reader will notice that its turn is over
                self._turn += 1
                self.phase, self.note = "stopped", "stopped"
        self._changed()
        if stream is not None:
            stream.close()

    def fail(self, trouble: Trouble) -> None:
        """Show an error that no run is to blame for."""
        with self._lock:
            self.trouble = trouble
        self._changed()

    def dismiss(self) -> None:
        """Take the error off the page."""
        with self._lock:
            self.trouble = None
        self._changed()

    def _read(self, turn: int, backend: Callable[[], Backend], request: Callable[[Backend], RunRequest]) -> None:
        try:
            joined = backend()
            stream = joined.run(request(joined))
        except LabError as error:
            self._failed(turn, Trouble.of(error))
            return
        except Exception:
            log.exception("a run could not be started")
            self._failed(turn, _UNEXPECTED)
            return
        with self._lock:
            if turn != self._turn:
                stream.close()
                return
            self._stream = stream
        fresh = True
        try:
            for event in stream:
                with self._lock:
                    if turn != self._turn:
                        break
                    if fresh:
                        self._begin()
                        fresh = False
                    self._take(event)
                self._changed()
        except LabError as error:
            self._failed(turn, Trouble.of(error))
        except Exception:
            log.exception("a run's events could not be read")
            self._failed(turn, _UNEXPECTED)
        finally:
            stream.close()
            with self._lock:
                if turn == self._turn:
                    self._stream = None
                    self._end_if_cut()
            self._changed()

    def _begin(self) -> None:
        self.events, self.inspections = [], []
        self.replaying = False
        self.trouble = None
        self._pace.reset()
        self._on_event(None)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self._on_event(event)
        match event:
            case RunStarted():
                self.phase, self.note, self.fraction = "running", "", None
            case Queued(position=position):
                self.phase = "queued"
                self.note = (
                    "next in the queue"
                    if position == 0
                    else f"{position} run{'s' if position > 1 else ''} before yours"
                )
            case Loading(stage=stage, fraction=fraction):
                self.phase, self.note, self.fraction = "loading", stage, fraction
            case Progress():
                self._far(event)
            case RunFinished():
                self.phase, self.note, self.fraction = "done", "", 1.0
            case RunCancelled(reason=reason):
                self.phase, self.note = "stopped", reason
            case RunFailed(message=message, remedy=remedy, code=code):
                self.phase, self.note = "failed", ""
                self.trouble = Trouble(message, remedy, code)
            case _:
                if self.phase in ("queued", "loading"):
                    self.phase = "running"

    def _far(self, event: Progress) -> None:
        """Where the run is: its stage, how far that is, and the time that is left of it at the pace so far.

        A run that does not count its stages does not say what its bar is a bar of: no time is derived from it.
        """
        share = min(1.0, event.done / event.total) if event.total else 0.0
        left = in_words(self._pace.at(event.stage, share, self._clock())) if event.stages else ""
        if self.phase != "stopping":
            self.phase, self.stage = "running", event.stage
            some = f"{event.done / 10:.0f}\u00a0%" if event.total == THOUSANDTHS else f"{event.done} of {event.total}"
            counted = f"stage {event.number} of {event.stages}: " if event.stages > 1 else ""
            rest = f"{left} of this stage" if left and event.number < event.stages else left
            self.note = f"{counted}{event.stage} {some}{', ' if rest else ''}{rest}"
        far = (max(0, event.number - 1) + share) / max(event.stages, 1) if event.total else None
        if far is not None and event.stages and self.fraction is not None:
            far = max(far, self.fraction)  # a part of a stage that begins anew takes nothing back
        self.fraction = far

    def _end_if_cut(self) -> None:
        """A stream that was closed here ends without its last event: end it as a stopped run."""
        if self.phase not in ACTIVE:
            return
        if self.events and isinstance(self.events[0], RunStarted):
            self._take(RunCancelled(reason="stopped"))
        self.phase, self.note = "stopped", "stopped"

    def _failed(self, turn: int, trouble: Trouble) -> None:
        with self._lock:
            if turn != self._turn:
                return
            self.phase, self.note, self.trouble = "failed", "", trouble
        self._changed()


_UNEXPECTED = Trouble(
    "Something went wrong that the lab did not expect.",
    "The server's log says what. Run again, or run `lab doctor` in a terminal.",
)
