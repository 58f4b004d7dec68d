"""The model process: a local backend behind the HTTP app.

`python -m lab.backend.serve` is started by `lab up`, which hands it a listening socket (`--fd`), its
token (environment) and a pipe as standard input: when the pipe closes, the parent has died, and so does this.
"""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable

import uvicorn

from lab.backend.app import create_app
from lab.backend.hosting import HostedSettings, hosted
from lab.backend.limits import Limits
from lab.backend.local import LocalBackend
from lab.backend.patience import patient_protocol
from lab.backend.protocol import DEFAULT_MODEL
from lab.backend.store import RunStore
from lab.errors import BadInput, LabError
from lab.paths import runs_dir
from lab.settings import BACKEND_TOKEN

log = logging.getLogger(__name__)

BACKLOG = 128
SHUTDOWN_S = 3
MIN_TOKEN = 16


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        BadInput: the port is in use, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        sock.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"Cannot listen on {host}, port {port}: {reason}.", remedy="Choose another port.") from None
    return sock


def address_of(sock: socket.socket) -> str:
    """The socket's address, "http://HOST:PORT"."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_host(host: str, *, allow_remote: bool, token: str) -> None:
    """Refuse to listen beyond this machine unless that is asked for and there is a token of one's own.

    Raises:
        BadInput: it is not.
    """
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if loopback:
        return
    if not allow_remote:
        raise BadInput(
            f"{host} can be reached from other machines.", remedy="Add --allow-remote and a token if you mean it."
        )
    if len(token) < MIN_TOKEN:
        raise BadInput(
            f"A token of {len(token)} characters does not protect {host}; it needs at least {MIN_TOKEN}.",
            remedy=f"Put a long random one into {BACKEND_TOKEN}.",
        )


def make_backend(limits: Limits | None = None) -> LocalBackend:
    """The model process's backend, with recordings where the cache can be written."""
    limits = limits or Limits()
    try:
        store = RunStore(runs_dir(), limits.stored_bytes) if limits.stored_bytes else None
    except LabError as error:
        log.warning("runs are not kept: %s", error)
        store = None
    return LocalBackend(store=store, limits=limits)


def make_server(backend: LocalBackend, token: str, hosting: HostedSettings | None = None) -> uvicorn.Server:
    """The HTTP server around a backend; `run(sockets=[...])` serves until `should_exit`. `hosting`: as `create_app`."""
    config = uvicorn.Config(
        create_app(backend, token, hosting),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",  # an upgrade is answered as the plain request that it also is
        http=patient_protocol(),
        loop="asyncio",  # the same wherever uvloop happens to be installed
        timeout_graceful_shutdown=SHUTDOWN_S,
        lifespan="off",
    )
    return uvicorn.Server(config)


def serve(backend: LocalBackend, sock: socket.socket, token: str, hosting: HostedSettings | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Runs under way are ended as cancelled."""
    try:
        make_server(backend, token, hosting).run(sockets=[sock])
    finally:
        backend.close()


def die_with_parent(on_end: Callable[[int], None] = os._exit) -> None:
    """End this process when its standard input closes: the process at the other end has died."""

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        on_end(1)

    threading.Thread(target=watch, name="lab-parent", daemon=True).start()


def take_token() -> str:
    """The token from the environment, removed from it so that no child inherits it; a random one if there is none."""
    return os.environ.pop(BACKEND_TOKEN, "").strip() or secrets.token_urlsafe(32)


def set_threads(threads: int) -> None:
    """Threads for torch, which reads them when it is imported; 0 leaves its own choice."""
    if threads > 0:
        os.environ["OMP_NUM_THREADS"] = str(threads)


def main(argv: list[str] | None = None) -> int:
    """Entry of `python -m lab.backend.serve`."""
    parser = argparse.ArgumentParser(prog="python -m lab.backend.serve", description="The lab's model process.")
    parser.add_argument("--fd", type=int, required=True, help="listening socket inherited from the parent")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="model to load ahead")
    parser.add_argument("--threads", type=int, default=0, help="threads of torch; 0 for its own choice")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    die_with_parent()
    set_threads(arguments.threads)
    token = take_token()
    sock = socket.socket(fileno=arguments.fd)
    hosting = hosted()
    backend = make_backend(hosting.limits() if hosting is not None else None)
    backend.warm(arguments.model)
    serve(backend, sock, token, hosting)
    return 0


if __name__ == "__main__":
    sys.exit(main())
