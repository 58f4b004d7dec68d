"""Whether a model will fit on the disk, said before a long download rather than after it."""

from __future__ import annotations

import shutil

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
    free = shutil.disk_usage(paths.models_dir()).free
    if needed + ROOM_BYTES > free:
        raise ModelError(
            f"{name} needs about {(needed + ROOM_BYTES) / MIB:,.0f} MiB in the cache directory while it is made, "
            f"but {free / MIB:,.0f} MiB are free.",
            remedy=f"Free some space, or set {paths.CACHE_VARIABLE} to a directory on another disk.",
        )
