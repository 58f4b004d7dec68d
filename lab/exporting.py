"""A recording as one HTML file. The views make it, in a process of their own: nothing here imports them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lab.events import Recording
from lab.settings import LANGUAGE
from lab.strings import ENGLISH, known_language
from lab.view_process import TIMEOUT_S, run_views


def write_html(recording: Recording, out: Path, *, language: str = ENGLISH, timeout_s: float = TIMEOUT_S) -> int:
    """Write the page of `recording` to `out`: its size, bytes. The file opens from disk without server or network.

    Args:
        language: of the page's title and lesson.

    Raises:
        LabError: there is no such language, the page would be too large, or `out` cannot be written.
        Unavailable: it took longer than `timeout_s`, or the process was killed.
    """
    settings = {LANGUAGE: known_language(language)}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "run.safetensors"
        recording.save(source)
        run_views(
            "widgets.exported",
            str(source),
            str(out.absolute()),
            what="The page",
            settings=settings,
            timeout_s=timeout_s,
        )
    return out.stat().st_size


def read_html(recording: Recording, language: str = ENGLISH) -> bytes:
    """The same as bytes, for a page that hands it out."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.html"
        write_html(recording, out, language=language)
        return out.read_bytes()
