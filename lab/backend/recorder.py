"""Writes runs to disk beside the worker, so that no run waits for the disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from lab.backend.store import RunStore
from lab.errors import LabError
from lab.events import Event, RunFinished, Spool
from lab.events.recording import Inspection

log = logging.getLogger(__name__)


class Recorder:
    """One thread that spools the events of live runs and packs each finished run.

    Only a run that ended by itself is packed: a stopped or failed one does not answer its card.
    A disk that is full or fails costs the recording, never the run.

    Args:
        packed: called from this thread with the key of each run that has left it, packed or not.
    """

    def __init__(self, store: RunStore, packed: Callable[[str], None]) -> None:
        self._store = store
        self._packed = packed
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._spools: dict[str, Spool | None] = {}
        self._events: dict[str, list[Event]] = {}
        self._thread = threading.Thread(target=self._work, name="lab-recorder", daemon=True)
        self._thread.start()

    def event(self, key: str, event: Event) -> None:
        """One more event of the run with that card; the first is its `run_started`."""
        self._jobs.put(lambda: self._write(key, event))

    def end(self, key: str) -> None:
        """The run has ended: pack it if its last event is `run_finished`, else forget it."""
        self._jobs.put(lambda: self._end(key))

    def asked(self, key: str, inspection: Inspection) -> None:
        """A question was asked of a finished run."""
        self._jobs.put(lambda: self._store.add_answer(key, inspection))

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish what is queued and stop."""
        self._jobs.put(None)
        self._thread.join(timeout_s)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was handed over so far is on disk."""
        done = threading.Event()
        self._jobs.put(done.set)
        return done.wait(timeout_s)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("recording failed")
        for key in list(self._spools):
            self._forget(key)

    def _write(self, key: str, event: Event) -> None:
        self._events.setdefault(key, []).append(event)
        if key not in self._spools:
            self._spools[key] = self._open(key)
        spool = self._spools[key]
        if spool is not None:
            try:
                spool.write(event)
            except LabError as error:
                log.warning("a run is not spooled further: %s", error)
                self._remove_spool(spool)
                self._spools[key] = None

    def _open(self, key: str) -> Spool | None:
        try:
            return self._store.spool(key)
        except LabError as error:
            log.warning("a run is not spooled: %s", error)
            return None

    def _end(self, key: str) -> None:
        events = self._events.get(key, [])
        try:
            if events and isinstance(events[-1], RunFinished):
                self._store.save(key, events)
        except LabError as error:
            log.warning("a run is not recorded: %s", error)
        finally:
            self._forget(key)
            self._packed(key)

    def _forget(self, key: str) -> None:
        self._events.pop(key, None)
        spool = self._spools.pop(key, None)
        if spool is not None:
            self._remove_spool(spool)

    @staticmethod
    def _remove_spool(spool: Spool) -> None:
        try:
            with spool:
                pass
        except LabError as error:
            log.warning("a spool was cut short: %s", error)
        try:
            spool.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("a spool was left behind: %s", error.strerror)
