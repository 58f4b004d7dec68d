"""Whether a model will fit on the disk, said before a long download rather than after it."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab import paths
from lab.errors import ModelError

MIB = 1 << 20
ROOM_BYTES = 16 * MIB
"""Tokenizer, config and manifest of a converted model."""


def require_disk(name: str, needed: int) -> None:
    """Refuse a model whose files will not fit into the cache directory.

    Args:
        needed: bytes of all that lies there at one time while the model is made.

    Raises:
        ModelError: there is less space; both numbers are in the message.
        BadInput: the cache directory cannot be written.
    """
    _require(name, needed + ROOM_BYTES, paths.models_dir(), "in the cache directory while it is made", paths.NO_ROOM)


def require_cache(name: str, needed: int, folder: Path) -> None:
    """Refuse what will not fit into a folder of the cache directory.

    Args:
        name: of what is kept there, in words.
        needed: bytes of all its files.

    Raises:
        ModelError: there is less space; both numbers and the folder are in the message.
    """
    _require(name, needed, folder, f"in {folder.name} of the lab's cache directory", paths.NO_ROOM)


def require_room(out: Path, needed: int) -> None:
    """Refuse a directory whose files will not fit where it is to be made.

    Raises:
        ModelError: there is less space; both numbers are in the message.
    """
    place = out.absolute().parent
    _require(out.name, needed + ROOM_BYTES, place, "there", "Free some space, or choose a directory on another disk.")


def _require(name: str, needed: int, place: Path, where: str, remedy: str) -> None:
    free = shutil.disk_usage(place).free
    if needed > free:
        raise ModelError(
            f"{name} needs about {needed / MIB:,.0f} MiB {where}, but {free / MIB:,.0f} MiB are free.",
            remedy=remedy,
        )
