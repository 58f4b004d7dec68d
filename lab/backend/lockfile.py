"""How a running `lab up` is found: a file of mode 0600 with its address and token, gone when it ends."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from lab.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Running:
    """A running lab.

    Attributes:
        pid: of `lab up` itself.
        started: when that process was created, seconds since the epoch: a reused pid has another one.
        url, token: of its model process.
        page: address of its page.
        hosted: it is there for visitors; this user's own commands do not join it.
    """

    pid: int
    started: float
    url: str
    token: str
    page: str = ""
    hosted: bool = False


def write_lock(path: Path, running: Running) -> None:
    """Write the file atomically, readable by this user alone.

    Raises:
        BadInput: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(running), file)
        temporary.replace(path)
    except OSError as error:
        raise BadInput(
            f"The lab cannot write {str(path)!r}: {error.strerror or error}.",
            remedy="Set LAB_CACHE_DIR to a writable folder.",
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def read_lock(path: Path) -> Running | None:
    """The lab that wrote the file, None if there is none that lives. Another user's file is not believed."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        body = json.loads(path.read_text(encoding="utf-8"))
        running = Running(**body)
        alive = abs(psutil.Process(int(running.pid)).create_time() - float(running.started)) < 1.0
    except (OSError, ValueError, TypeError, psutil.Error):
        return None
    return running if alive else None


def remove_lock(path: Path, pid: int) -> None:
    """Remove the file if it is that process's own."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        if json.loads(path.read_text(encoding="utf-8")).get("pid") == pid:
            path.unlink()


def this_process(*, url: str, token: str, page: str = "", hosted: bool = False) -> Running:
    """What this process would write."""
    pid = os.getpid()
    started = psutil.Process(pid).create_time()
    return Running(pid=pid, started=started, url=url, token=token, page=page, hosted=hosted)
