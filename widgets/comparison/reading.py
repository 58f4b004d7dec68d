"""A recording of a visitor's, read from its bytes; a run of a file."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.backend.hosting import hosted
from lab.backend.limits import MIB
from lab.errors import BadInput, LabError, RecordingError
from lab.events import Event, Recording
from widgets.comparison.core import Run, compare, run_of, same_run
from widgets.comparison.data import Comparison

log = logging.getLogger(__name__)

LARGEST_BYTES = 4 * MIB
"""Of a file that comes through the page: recordings of the lab's own runs have 0.05 to 1 MiB."""
ENVELOPE_BYTES = 64 * 1024
"""What a page's message has beside the file."""


def upload_limit() -> int:
    """Bytes of a file that a page may send: no more than a hosted lab takes in one message."""
    settings = hosted()
    return LARGEST_BYTES if settings is None else min(LARGEST_BYTES, settings.message_mib * MIB - ENVELOPE_BYTES)


def read_upload(name: str, data: bytes) -> Recording:
    """The recording in `data`. It is read by the lab's own reader, which can run no code.

    Args:
        name: as the visitor's file is called; for messages alone.

    Raises:
        RecordingError: it is none, is damaged, or is of a newer version.
    """
    shown = re.sub(r"[^\w. -]", "_", name)[-80:].lstrip(". ") or "recording"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / shown
        path.write_bytes(data)
        return Recording.load(path)


def too_large(name: str, size: int, limit: int) -> BadInput:
    """What to say of a file that is not taken."""
    return BadInput(
        f"{name!r} has {size:,} bytes; this page takes at most {limit:,}.",
        remedy="Is it a model's weights? `lab compare A B` in a terminal has no such limit.",
    )


def read_run(events: Sequence[Event], name: str, *, filed: bool = True) -> Run:
    """The run of a recording's events.

    Args:
        filed: whether they were read from a file.

    Raises:
        NotFound: runs of its experiment cannot be compared here.
        RecordingError: the events do not fit together.
    """
    try:
        return run_of(events, filed=filed)
    except LabError:
        raise
    except Exception as error:  # anybody can write a file whose events do not fit together
        log.warning("a recording could not be folded", exc_info=True)
        raise RecordingError(
            f"The events of {name!r} do not fit together ({type(error).__name__}).", remedy="Make the recording again."
        ) from None


def compare_files(a: Path, b: Path) -> Comparison:
    """Two recordings set against each other.

    Raises:
        LabError: a file cannot be read, both are the same run, or they are of different experiments.
    """
    first, second = Recording.load(a), Recording.load(b)
    return compare_recordings(first, second, (a.name, b.name))


def compare_recordings(a: Recording, b: Recording, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """The same for recordings; `names` are for messages."""
    if same_run(a.started, b.started):
        raise BadInput(
            f"{names[0]!r} and {names[1]!r} are the same run.", remedy="Compare two runs, with other settings say."
        )
    return compare(read_run(a.events, names[0]), read_run(b.events, names[1]))
