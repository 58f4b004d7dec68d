"""Where adapters lie: the packaged one, those kept on this machine by name, folders. No torch here."""

from __future__ import annotations

import re
from pathlib import Path

from lab import paths

PACKAGED = "packaged"
"""The adapter that the package brings."""
MOST_MERGED = 16
"""Merged models that may lie here at one time: each is as large as its base."""
FILES = ("adapter_config.json", "adapter_model.safetensors")
"""Of an adapter in PEFT's format."""
MAX_NAME = 40
"""Characters of a name to keep something under."""
NAME_RULE = "letters, digits, - and _ only, a letter or a digit first; letters are A to Z and a to z"
"""The characters of such a name, in words."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def is_name(text: str) -> bool:
    """Whether something can be kept under it."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def check_spelling(name: str) -> str:
    """A name to keep something under, "" for none: a field validator.

    Raises:
        ValueError: with the characters that there may be.
    """
    if name and not _NAME.fullmatch(name):
        raise ValueError(f"a name has {NAME_RULE}")
    return name


def kept_names() -> list[str]:
    """Adapters kept here, by name."""
    try:
        found = [path.name for path in paths.adapters_location().iterdir() if (path / FILES[1]).is_file()]
    except OSError:
        return []
    return sorted(name for name in found if is_name(name))


def merged_path(name: str) -> Path:
    """The folder of the merged model `name`; it need not exist. What lies there is listed with the other models."""
    return paths.trained_location() / name


def adapter_path(name: str) -> Path:
    """The folder that `name` stands for: one that was kept under it, else the path as it is written."""
    if is_name(name) and (paths.adapters_location() / name).is_dir():
        return paths.adapters_location() / name
    path = Path(name)
    try:
        return path.expanduser()
    except RuntimeError:  # "~nobody": no such user
        return path
