"""Which backend a notebook or a command talks to."""

from __future__ import annotations

import atexit
import logging
import os

from lab.backend.http import HttpBackend
from lab.backend.lockfile import read_lock
from lab.backend.protocol import Backend
from lab.errors import BadInput, LabError
from lab.settings import BACKEND_TOKEN, BACKEND_URL, lock_path

log = logging.getLogger(__name__)


def connect(where: str = "auto") -> Backend:
    """A backend.

    Args:
        where: "auto" (the one named by LAB_BACKEND_URL and LAB_BACKEND_TOKEN, else a running `lab up`, else one in
            this process), "local" (in this process), or an address (token from LAB_BACKEND_TOKEN).

    Raises:
        BadInput: an address without a token, or something else that is no choice.
    """
    if where == "local":
        return local_backend()
    if where != "auto":
        return _remote(where)
    url = os.environ.get(BACKEND_URL, "").strip()
    if url:
        return _remote(url)
    return running_backend() or local_backend()


def running_backend() -> HttpBackend | None:
    """The model process of a `lab up` of this user that lives and answers, if any.

    A hosted one is left to its visitors: it would refuse this user's own models and files.
    """
    try:
        running = read_lock(lock_path())
    except LabError:
        return None
    if running is None or running.hosted:
        return None
    backend = HttpBackend(running.url, running.token)
    try:
        backend.health(timeout_s=5.0)
    except LabError as error:
        log.warning("a lab runs as process %d but does not answer: %s", running.pid, error)
        backend.close()
        return None
    return backend


def local_backend() -> Backend:
    """A backend in this process, with its recordings in the cache directory if that can be written."""
    from lab.backend.limits import Limits
    from lab.backend.local import LocalBackend
    from lab.backend.store import RunStore
    from lab.paths import runs_dir

    limits = Limits()
    try:
        store = RunStore(runs_dir(), limits.stored_bytes)
    except LabError as error:
        log.warning("runs are not kept: %s", error)
        store = None
    backend = LocalBackend(store=store, limits=limits)
    atexit.register(backend.close)  # the worker must not be inside torch while the interpreter goes down
    return backend


def _remote(url: str) -> HttpBackend:
    token = os.environ.get(BACKEND_TOKEN, "").strip()
    if not url.startswith(("http://", "https://")):
        raise BadInput(f"{url!r} is not a backend.", remedy="Choose auto, local, or an address http://HOST:PORT.")
    if not token:
        raise BadInput(f"The backend at {url} needs a token.", remedy=f"Put it into {BACKEND_TOKEN}.")
    return HttpBackend(url, token)
