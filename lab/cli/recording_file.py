"""The file of a run that is being made: checked first, spooled meanwhile, packed at the end, recovered after a kill."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import psutil

from lab.errors import BadInput, RecordingError
from lab.events import Event, Loading, Queued, Recording, RunCancelled, RunStarted, Spool, recover_spool
from lab.events.recording import KILLED, NOT_WRITTEN_ON

ROOM_BYTES = 8 * 1024 * 1024
"""Free space asked for before a run starts; most recordings take less than one MiB."""

_SPOOL = ".spool"
_CUT = f".cut{_SPOOL}"
"""The end of a spool's name whose run had to give it up; where the disk is full, a name can still be changed."""

_WHY = {
    KILLED: "was killed before its end",
    NOT_WRITTEN_ON: "was stopped because its events could not be written on",
}


class RecordingFile:
    """Spools a run beside `out` and packs it there. The spool's name holds this process's id.

    Raises:
        BadInput: the folder is missing, not writable or full, or `out` is a folder.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        try:
            check_folder(out)
        except OSError as error:
            raise BadInput(
                f"{str(out)!r} cannot be written: {error.strerror or error}.", remedy="Name a file in another folder."
            ) from None
        self._spool = Spool(out.with_name(f"{out.name}.{os.getpid()}.spool"))
        self._begun = False

    def write(self, event: Event) -> None:
        """Add an event. What came before `run_started`, and the wait, is not part of a recording."""
        self._begun = self._begun or isinstance(event, RunStarted)
        if self._begun and not isinstance(event, Queued | Loading):
            self._spool.write(event)

    def pack(self) -> int | None:
        """Write the recording and remove the spool: its size in bytes, None if the run never began."""
        if not self._begun:
            self.discard()
            return None
        self._spool.pack(self.out)
        for _, path in leftover_spools(self.out):
            with contextlib.suppress(OSError):
                path.unlink()
        return self.out.stat().st_size

    def give_up(self) -> None:
        """Close the spool and leave it, named as cut short: `lab replay` shows what it holds, and says why."""
        with contextlib.suppress(RecordingError), self._spool:
            pass
        path = self._spool.path
        with contextlib.suppress(OSError):
            path.rename(path.with_name(path.name.removesuffix(_SPOOL) + _CUT))

    def discard(self) -> None:
        """Remove the spool: there is nothing to keep."""
        with self._spool:
            self._spool.path.unlink(missing_ok=True)


def check_folder(out: Path) -> None:
    """Raise `BadInput` where `out` cannot be written: a folder, or in one that is missing, locked or full."""
    folder = out.absolute().parent
    if out.is_dir():
        raise BadInput(f"{str(out)!r} is a folder.", remedy="Name a file in it.")
    if not folder.is_dir():
        raise BadInput(f"The folder {str(folder)!r} does not exist.", remedy="Create it, or name another file.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"The folder {str(folder)!r} is not writable.", remedy="Name a file in another one.")
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise BadInput(
            f"{str(folder)!r} has {free:,} bytes free; a recording may need {ROOM_BYTES:,}.",
            remedy="Free some space, or name a file elsewhere.",
        )


def leftover_spools(out: Path) -> list[tuple[float, Path]]:
    """Spools of runs that were killed or cut short on their way to `out`, the newest first, with their times."""
    found = []
    for path in out.absolute().parent.glob(f"{_escaped(out.name)}.*{_SPOOL}"):
        cut = path.name.endswith(_CUT)
        pid = path.name.removesuffix(_CUT if cut else _SPOOL).rpartition(".")[2]
        if pid.isdecimal() and (cut or not psutil.pid_exists(int(pid))):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path))
    return sorted(found, reverse=True)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def open_recording(path: Path) -> tuple[Recording, str]:
    """A recording and a remark on it ("" if there is nothing to say).

    Where the file is missing but the spool of a run that was killed or cut short lies beside it, that is recovered; a
    spool can also be named itself.

    Raises:
        RecordingError: nothing there that can be read.
    """
    try:
        return _opened(path)
    except OSError as error:
        raise RecordingError(f"{str(path)!r} cannot be read: {error.strerror}.", remedy="Check the path.") from None


def _opened(path: Path) -> tuple[Recording, str]:
    if path.suffix == _SPOOL:
        return _recovered(path)
    spools = leftover_spools(path)
    if path.exists():
        recording = Recording.load(path)
        newer = bool(spools) and spools[0][0] > path.stat().st_mtime
        name = spools[0][1].name if newer else ""
        what = "could not be written" if name.endswith(_CUT) else "was killed"
        return recording, f"A later run {what}; `lab replay {name}` shows it." if newer else ""
    if not spools:
        raise RecordingError(f"No recording at {str(path)!r}.", remedy="Check the path.")
    return _recovered(spools[0][1])


def _recovered(path: Path) -> tuple[Recording, str]:
    recording = recover_spool(path, NOT_WRITTEN_ON if path.name.endswith(_CUT) else KILLED)
    end = recording.events[-1]
    why = _WHY.get(end.reason if isinstance(end, RunCancelled) else "", "ended, but its recording was not written")
    return recording, f"The run {why}; recovered from {path.name}."
