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
    remedy = f"Free some space, or set {paths.CACHE_VARIABLE} to a directory on another disk."
    _require(name, needed, paths.models_dir(), "in the cache directory while it is made", remedy)


def require_room(out: Path, needed: int) -> None:
    """Refuse a directory whose files will not fit where it is to be made.

    Raises:
        ModelError: there is less space; both numbers are in the message.
    """
    place = out.absolute().parent
    _require(out.name, needed, place, "there", "Free some space, or choose a directory on another disk.")


def _require(name: str, needed: int, place: Path, where: str, remedy: str) -> None:
    free = shutil.disk_usage(place).free
    if needed + ROOM_BYTES > free:
        raise ModelError(
            f"{name} needs about {(needed + ROOM_BYTES) / MIB:,.0f} MiB {where}, but {free / MIB:,.0f} MiB are free.",
            remedy=remedy,
        )
