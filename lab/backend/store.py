"""Recordings of finished runs on disk, by run card: the same card is answered from here.

One folder, several processes: names are unique to their writer, files appear by rename, the least
recently used go first, and what is damaged is removed and forgotten.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import psutil

from lab.errors import RecordingError
from lab.events import Event, Recording, RunStarted, Spool
from lab.events.codec import strict_loads, to_json
from lab.events.recording import Inspection, decode_inspection

log = logging.getLogger(__name__)

MAX_ASKED_BYTES = 8 * 1024 * 1024
ORPHAN_S = 3600.0


class RunStore:
    """Recordings of finished runs.

    Args:
        folder: where they lie; created by the caller.
        max_bytes: the least recently used are removed beyond it.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._remove_orphans()

    def load(self, key: str) -> Recording | None:
        """The recording of the run with that card, or None. A damaged file is removed."""
        path = self._path(key)
        if not path.exists():
            return None
        try:
            recording = Recording.load(path)
            if recording.started.card.key() != key:
                raise RecordingError(f"{path.name!r} holds the run of another card.")
        except (RecordingError, ValueError, TypeError) as error:
            log.warning("removed a damaged recording: %s", error)
            self._remove(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used goes first
        return Recording(recording.events, (*recording.inspections, *self._asked(key)))

    def save(self, key: str, events: Iterable[Event]) -> None:
        """Pack a finished run.

        Raises:
            RecordingError: it cannot be written.
        """
        first, *rest = events
        if not isinstance(first, RunStarted):
            raise RecordingError("A recording begins with run_started; this one does not.")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        started = RunStarted(run_id=first.run_id, card=first.card, facts=first.facts, recorded=first.recorded or now)
        self._asked_path(key).unlink(missing_ok=True)
        Recording((started, *rest)).save(self._path(key))
        self._trim()

    def spool(self, key: str) -> Spool:
        """A spool for a run that is starting. Its name carries this process's id: see `_remove_orphans`.

        Raises:
            RecordingError: it cannot be written.
        """
        return Spool(self.folder / f"{key}.{os.getpid()}.ndjson")

    def add_answer(self, key: str, asked: Inspection) -> None:
        """Remember an answer beside the recording; at most 8 MiB for one run."""
        path = self._asked_path(key)
        line = json.dumps(to_json(asked), separators=(",", ":"), allow_nan=False) + "\n"
        try:
            if not self._path(key).exists() or (path.exists() and path.stat().st_size + len(line) > MAX_ASKED_BYTES):
                return
            with path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            log.warning("an answer was not recorded: %s", error)

    def _asked(self, key: str) -> Iterable[Inspection]:
        try:
            lines = self._asked_path(key).read_bytes().split(b"\n")
        except OSError:
            return
        for line in lines:
            if not line:
                continue
            try:
                yield decode_inspection(strict_loads(line))
            except (ValueError, RecursionError, RecordingError):
                log.warning("skipped a damaged answer in %s", self._asked_path(key).name)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"

    def _asked_path(self, key: str) -> Path:
        return self.folder / f"{key}.asked.ndjson"

    def _remove(self, key: str) -> None:
        for path in (self._path(key), self._asked_path(key)):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _trim(self) -> None:
        files = []
        for path in self.folder.glob("*.safetensors"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                files.append((stat.st_mtime_ns, stat.st_size, path.stem))
        total = sum(size for _, size, _ in files)
        for _, size, key in sorted(files):
            if total <= self.max_bytes:
                return
            self._remove(key)
            total -= size

    def _remove_orphans(self) -> None:
        """Spools and half-written files of processes that are gone."""
        for path in self.folder.glob("*.ndjson"):
            pid = path.name.split(".")[-2]
            if pid.isdecimal() and not psutil.pid_exists(int(pid)):
                with contextlib.suppress(OSError):
                    path.unlink()
        for path in self.folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ORPHAN_S:
                    path.unlink()
