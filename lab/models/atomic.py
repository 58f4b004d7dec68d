"""Building a directory so that it is either whole or not there, by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.errors import BadInput, ModelError, shown

ProgressCallback = Callable[[str, float | None], None]
"""Told a stage in words and the fraction of it that is done (0..1), or None where that is unknown."""

_PARTIAL = ".partial-"
_POLL_S = 0.2


def silent(stage: str, fraction: float | None) -> None:
    """A progress callback that says nothing."""
    del stage, fraction


def build_directory(
    target: Path,
    build: Callable[[Path], None],
    *,
    is_complete: Callable[[Path], bool],
    progress: ProgressCallback = silent,
) -> Path:
    """Make `target` by filling a sibling directory and renaming it, under a lock between processes.

    Two processes that ask at once build once: the second waits, then finds the directory complete.
    What a killed process left behind is removed by the next one that holds the lock.

    Args:
        target: the directory to make. If it is there and complete, nothing happens.
        build: fills the empty directory it is given; may raise, then nothing is left.
        is_complete: whether a directory can be used as it is.
    """
    if is_complete(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(target.with_name(f".{target.name}.lock"), progress):
        remove_partials(target)
        if is_complete(target):
            return target
        partial = make_partial(target)
        try:
            build(partial)
            _sync(partial)
            if target.exists():
                shutil.rmtree(target)
            partial.chmod(0o755)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    if not is_complete(target):
        raise ModelError(
            f"The model in {target.name} was written but does not check out.", remedy="Is the disk full or failing?"
        )
    return target


def make_partial(target: Path) -> Path:
    """A new empty directory beside `target`, to be filled and renamed to it."""
    return Path(tempfile.mkdtemp(prefix=f"{_PARTIAL}{target.name}-", dir=target.absolute().parent))


def remove_partials(target: Path) -> None:
    """Remove what killed processes left of `make_partial`; call it under the target's lock.

    Only names that end in `mkdtemp`'s own 8 characters: ".partial-m-8bit-abcdefgh" is of "m-8bit", not of "m".
    """
    ours = re.compile(re.escape(f"{_PARTIAL}{target.name}-") + "[a-z0-9_]{8}")
    for path in list(target.absolute().parent.iterdir()):
        if ours.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def filled_directory(out: Path, *, wait: bool = True) -> Iterator[Path]:
    """An empty directory beside `out` that becomes `out` if the block ends well, and goes if it does not.

    What a killed process left of it is removed by the next one that writes there.

    Args:
        wait: for another that writes there now. False is for a run that shares its thread with others: it is refused.

    Raises:
        BadInput: `out` was made meanwhile, or is being written.
        ModelError: the disk is full or fails; nothing is left.
    """
    from safetensors import SafetensorError

    lock = out.with_name(f".{out.name}.lock")
    try:
        with file_lock(lock, wait=wait):
            remove_partials(out)
            partial = make_partial(out)
            try:
                yield partial
                _sync(partial)
                partial.chmod(0o755)
                partial.rename(out)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
                lock.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise BadInput(f"{out.name} was made by another process meanwhile.", remedy="Choose another.") from None
        raise not_written(out, error.strerror or str(error)) from error
    except SafetensorError as error:
        raise not_written(out, str(error)[:200]) from error


def not_written(out: Path, reason: str) -> ModelError:
    """The error for a directory that could not be written whole."""
    return ModelError(
        f"{out.name} cannot be written: {reason}. Nothing of it was left.",
        remedy="Free some space, or choose a directory on another disk.",
    )


@contextlib.contextmanager
def file_lock(path: Path, progress: ProgressCallback = silent, *, wait: bool = True) -> Iterator[None]:
    """Hold `path` as a lock between processes. The system lets go of it when the process dies.

    Raises:
        BadInput: another holds it, and this one does not `wait`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _try_lock(descriptor):
            if not wait:
                name = path.name.removeprefix(".").removesuffix(".lock")
                raise BadInput(f"{name} is being written by another run.", remedy="Wait for it, or name another.")
            progress("waiting for another process that prepares this model", None)
            while not _try_lock(descriptor):
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sync(directory: Path) -> None:
    # A rename can reach the disk before the data does: without this, a power cut leaves whole names on empty files.
    for path in directory.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def check_out(out: Path) -> None:
    """Refuse a place that cannot be written, before work begins: a directory is made beside it and removed.

    Permissions do not tell: a file system may be read-only, full, or the name too long for it.

    Raises:
        BadInput: it exists, or its parent is missing or a file, or nothing can be made there.
    """
    name, parent = shown(str(out), 200), out.absolute().parent
    try:
        if out.exists() or out.is_symlink():
            raise BadInput(f"{name} exists already.", remedy="Choose another directory, or remove it first.")
        if not parent.is_dir():
            file = next((place for place in (parent, *parent.parents) if place.is_file()), None)
            wrong, remedy = (parent, "Make it first.") if file is None else (file, "Choose a place in a directory.")
            is_what = "is no directory" if file is None else "is a file"
            raise BadInput(f"{name} cannot be made: {shown(str(wrong), 200)} {is_what}.", remedy=remedy)
        make_partial(out).rmdir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"{name} cannot be made in {shown(str(parent), 200)}: {reason}.",
            remedy=_TO_DO.get(getattr(error, "errno", None) or 0, "Choose another place."),
        ) from None


_MAY_NOT = "Choose a place that you may write to, or change who may."
_TO_DO = {
    errno.EACCES: _MAY_NOT,
    errno.EPERM: _MAY_NOT,
    errno.EROFS: "Choose a place on a disk that is not read-only.",
    errno.ENOSPC: "Free some space, or choose a place on another disk.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}
