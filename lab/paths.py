"""Where the lab keeps files on this machine: converted models, runs, the lock file of a running lab."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lab.errors import BadInput

CACHE_VARIABLE = "LAB_CACHE_DIR"
NO_ROOM = f"Free some space, or set {CACHE_VARIABLE} to a directory on another disk."
"""What to do where the cache directory's disk is full."""


def cache_location() -> Path:
    """The cache directory's path, which may not exist yet: `LAB_CACHE_DIR`, else the user's cache."""
    chosen = os.environ.get(CACHE_VARIABLE, "").strip()
    if chosen:
        return Path(chosen).expanduser().absolute()
    return _user_cache() / "inference-lab"


def cache_dir() -> Path:
    """The cache directory, created when missing.

    Raises:
        BadInput: it cannot be created or written.
    """
    return _usable(cache_location())


def models_dir() -> Path:
    """Converted models, one directory each, created when missing."""
    return _usable(cache_location() / "models")


def trained_location() -> Path:
    """The path of `trained_dir`, which may not exist yet."""
    return cache_location() / "trained"


def trained_dir() -> Path:
    """Models trained or merged on this machine, one directory in transformers format each, created when missing.

    What lies here is listed with the other models.
    """
    return _usable(trained_location())


def adapters_location() -> Path:
    """The path of `adapters_dir`, which may not exist yet."""
    return cache_location() / "adapters"


def adapters_dir() -> Path:
    """Adapters trained on this machine, one directory in PEFT's format each, created when missing."""
    return _usable(adapters_location())


def runs_dir() -> Path:
    """Recordings of the runs made on this machine, created when missing."""
    return _usable(cache_location() / "runs")


def notebooks_dir() -> Path:
    """The folder of the notebooks that are the lab's pages.

    Raises:
        BadInput: it is not where this installation should have it.
    """
    package = Path(__file__).resolve().parents[1]
    # An installed lab's own come first: beside it, in site-packages, "notebooks" may be anybody's.
    for folder in (package / "widgets" / "notebooks", package / "notebooks"):
        if folder.is_dir():
            return folder
    raise BadInput("The notebooks are not here.", remedy="Install the lab again, or run it from its repository.")


def runtime_dir() -> Path:
    """Where a running lab leaves its address and token: readable by this user alone (mode 0700)."""
    path = _usable(cache_location() / "runtime")
    try:
        path.chmod(0o700)
    except OSError as error:
        raise not_writable(path, error) from None
    return path


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _usable(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(path, error) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise not_writable(path, None)
    return path


def not_writable(path: Path, error: OSError | None) -> BadInput:
    """The error for a directory of the cache that cannot be made, or in which nothing can be made."""
    reason = f" ({error.strerror})" if error is not None and error.strerror else ""
    return BadInput(
        f"The lab cannot write to its cache directory {path}{reason}.",
        remedy=f"Make it writable, or set {CACHE_VARIABLE} to a directory that is.",
    )
