"""What all commands share: errors in words, text that cannot drive the terminal, progress on stderr."""

from __future__ import annotations

import errno
import functools
import io
import os
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import typer

from lab.errors import LabError
from lab.events import Event, Loading, Progress, Queued

P = ParamSpec("P")
T = TypeVar("T")

LINE_EVERY_S = 2.0
NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing to stdout fails with when the disk behind it is full or broken."""


def say(text: str) -> None:
    """One line on stderr; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


def fail(error: LabError) -> typer.Exit:
    """Print "error: message remedy" and give the exit that a command raises."""
    say(printable(f"error: {error}"))
    return typer.Exit(error.exit_code)


def in_words(command: Callable[P, T]) -> Callable[P, T]:
    """Let a command end with its error in words instead of a traceback."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except LabError as error:
            raise fail(error) from None
        except OSError as error:
            if error.errno not in NOT_WRITTEN or error.filename is not None:
                raise
            silence_stdout()
            raise fail(not_written(error)) from None

    return wrapped


def not_written(error: OSError) -> LabError:
    """The error for output that the disk behind stdout did not take."""
    return LabError(f"The output cannot be written: {error.strerror}.", remedy="Free some space, or send it elsewhere.")


def silence_stdout() -> None:
    """Let what is still to be written go nowhere: the interpreter flushes stdout at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def mend_streams() -> None:
    """Make stdout and stderr take any text: a terminal of few characters gets escapes, a closed stream nothing."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for the process's whole life
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """`text` with control characters escaped: what a model writes must not drive the terminal."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else ascii(c)[1:-1] for c in text
    )


class ProgressLine:
    """A run's progress on stderr: a bar on a terminal, else a line every two seconds. Use as a context manager."""

    def __init__(self, *, shown: bool = True) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._shown = shown
        self._last_line = ("", 0.0)

    def __enter__(self) -> ProgressLine:
        if self._shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("starting", total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, event: Event) -> None:
        """Update from an event; those that tell of no progress change nothing."""
        if isinstance(event, Progress):
            self._set(event.stage, event.done, event.total)
        elif isinstance(event, Loading):
            share = "" if event.fraction is None else f", {event.fraction:.0%}"
            done = None if event.fraction is None else round(event.fraction * 100)
            self._set(event.stage, done or 0, None if done is None else 100, words=event.stage + share)
        elif isinstance(event, Queued):
            before = "next" if event.position == 0 else f"{event.position} before it"
            self._set(f"waiting for its turn ({before})", 0, None)

    def _set(self, stage: str, done: int, total: int | None, words: str = "") -> None:
        stage = printable(stage)
        if self._bar is not None:
            self._bar.update(self._task, description=stage, completed=done, total=total)
        elif self._shown:
            last_stage, last_time = self._last_line
            now = time.monotonic()
            if stage != last_stage or now - last_time >= LINE_EVERY_S:
                self._last_line = (stage, now)
                say(printable(words) or (stage if total is None else f"{stage}: {done} of {total}"))
