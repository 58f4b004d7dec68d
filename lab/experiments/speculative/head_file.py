"""For which model the packaged draft head was trained, read from its file's header. No torch here."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

_NAME = "smollm2-135m-instruct.safetensors"
_MOST = 1 << 20


@lru_cache(maxsize=1)
def head_target() -> tuple[str, str]:
    """Id and weight hash of its target; two empty texts where there is no readable head."""
    file = files("lab.decoding.drafts.eagle") / "weights" / _NAME
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            said: Any = json.loads(stream.read(size)) if 0 < size <= _MOST else {}
    except (OSError, ValueError):
        return "", ""
    metadata = said.get("__metadata__") if isinstance(said, dict) else None
    if not isinstance(metadata, dict):
        return "", ""
    return str(metadata.get("target", "")), str(metadata.get("weight_hash", ""))
