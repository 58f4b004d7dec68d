"""A recording as one HTML file. The views make it, in a process of their own: nothing here imports them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.errors import BY_CODE, LabError, Unavailable
from lab.events import Recording
from lab.settings import LANGUAGE, REPLAY
from lab.strings import ENGLISH, known_language

TIMEOUT_S = 180.0
"""The largest pages take a few seconds; a machine that is busy with other runs, many more."""


def write_html(recording: Recording, out: Path, *, language: str = ENGLISH, timeout_s: float = TIMEOUT_S) -> int:
    """Write the page of `recording` to `out`: its size, bytes. The file opens from disk without server or network.

    Args:
        language: of the page's title and lesson.

    Raises:
        LabError: there is no such language, the page would be too large, or `out` cannot be written.
        Unavailable: it took longer than `timeout_s`, or the process was killed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in (REPLAY, "QUERY_STRING")}
    environment[LANGUAGE] = known_language(language)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "run.safetensors"
        recording.save(source)
        command = [sys.executable, "-m", "widgets.exported", str(source), str(out.absolute())]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(
                f"The page was not made within {timeout_s:g} s.", remedy="Try again when less runs on this machine."
            ) from None
    if done.returncode:
        raise _error(done.stderr, done.returncode)
    return out.stat().st_size


def _error(told: str, code: int) -> LabError:
    """The error that the process told; where it told none, that it ended."""
    last = told.strip().rpartition("\n")[2]
    try:
        found = json.loads(last)
        return BY_CODE[found["code"]](found["message"], remedy=found["remedy"])
    except (ValueError, KeyError, TypeError):
        why = f"exit code {code}: {last}" if last else f"exit code {code}"
        return Unavailable(f"The page could not be made ({why}).", remedy="Run `lab doctor` in a terminal.")


def read_html(recording: Recording, language: str = ENGLISH) -> bytes:
    """The same as bytes, for a page that hands it out."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.html"
        write_html(recording, out, language=language)
        return out.read_bytes()
