"""A real uvicorn on loopback around toys."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from lab.backend.hosting import HostedSettings
from lab.backend.http import HttpBackend
from lab.backend.limits import Limits
from lab.backend.local import LocalBackend
from lab.backend.serve import address_of, listen, make_server

from .toys import CountRunner, backend, until

TOKEN = "a-token-for-tests"


@dataclass
class Served:
    """A server in this process and its client."""

    url: str
    runner: CountRunner
    local: LocalBackend
    http: HttpBackend


@pytest.fixture
def served() -> Iterator[Served]:
    """A server of one's own: the test sees all that its runs did."""
    with _toys() as served:
        yield served


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """A server for tests that leave nothing behind."""
    with _toys() as served:
        yield served


@contextlib.contextmanager
def _toys() -> Iterator[Served]:
    runner = CountRunner()
    limits = Limits(active_runs=2, waiting_runs=1, heartbeat_s=0.1, body_bytes=200_000)
    with serving(backend(runner, limits=limits), runner) as served:
        yield served


@contextlib.contextmanager
def serving(local: LocalBackend, runner: CountRunner, hosting: HostedSettings | None = None) -> Iterator[Served]:
    """A server around a backend, which is closed with it."""
    sock = listen("127.0.0.1", 0)
    url = address_of(sock)
    server = make_server(local, TOKEN, hosting)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    until(lambda: server.started, "the server started")
    http = HttpBackend(url, TOKEN)
    yield Served(url, runner, local, http)
    http.close()
    local.close()
    server.should_exit = True
    thread.join(10)
    sock.close()
    assert not thread.is_alive()
