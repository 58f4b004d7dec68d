"""What is kept under a name in the lab's cache directory: its place tried before the work, its errors in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import paths
from lab.errors import LabError, ModelError
from lab.models.atomic import make_partial


def check_cache_place(folder: Path, name: str) -> None:
    """Make a directory for `name` in a folder of the cache directory, and remove it: permissions alone do not tell.

    Raises:
        BadInput: nothing can be made there; the folder is named.
    """
    try:
        make_partial(folder / name).rmdir()
    except OSError as error:
        raise paths.not_writable(folder, error) from None


@contextmanager
def written_to_cache() -> Iterator[None]:
    """While something is written there.

    Raises:
        LabError: the disk is full or fails. What was asked for was fine, so it is no bad input; and a name was asked
            for, so that the remedy names no other directory than the cache.
    """
    try:
        yield
    except ModelError as error:
        raise LabError(error.message, remedy=paths.NO_ROOM) from error
