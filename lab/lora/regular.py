"""Reading regular files only, and only so much of them: a pipe would wait for its writer, /dev/zero never ends."""

from __future__ import annotations

import os
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG

MAX_WEIGHT_BYTES = 2 << 30
"""Of an adapter's file of weights."""
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, to read.

    Raises:
        OSError: there is none, or it is a pipe, a device or a directory. It is never waited for.
    """
    number = os.open(path, _FLAGS)
    try:
        if not S_ISREG(os.fstat(number).st_mode):
            raise OSError("no regular file")
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_regular(path: Path, most: int) -> bytes | None:
    """All of a regular file; None where it has more than `most` bytes, of which one more is read.

    Raises:
        OSError: see `open_regular`.
    """
    with open_regular(path) as file:
        raw = file.read(most + 1)
    return raw if len(raw) <= most else None
