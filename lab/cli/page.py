"""The page's server as a child process: how it is started, waited for and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.backend.hosting import HOSTED, HostedSettings
from lab.errors import BackendUnavailable, BadInput
from lab.settings import BACKEND_TOKEN, BACKEND_URL, DEFAULT_PORT, PAGE_TOKEN, REPLAY

READY_PROBE = "voila/templates/base/static/voila.js"
PORTS_TRIED = 50
STOP_S = 8.0
POLL_S = 0.1
EVERY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound to here


def voila_command(host: str, port: int, notebooks: Path) -> list[str]:
    """How the page's server is started."""
    where = ["--host", host, "--port", str(port), "--notebooks", str(notebooks)]
    return [sys.executable, "-m", "widgets.voila.server", *where]


def page_environment(
    url: str, token: str, recording: Path | None, hosting: HostedSettings | None = None, page_token: str = ""
) -> dict[str, str]:
    """The environment of the page's server and of its kernels: where the model process is, what to replay, and what
    a hosted lab allows."""
    environment = {**hosted_environment(hosting), BACKEND_URL: url, BACKEND_TOKEN: token}
    environment.pop(REPLAY, None)
    if recording is not None:
        environment[REPLAY] = str(recording)
    return {**environment, PAGE_TOKEN: page_token} if page_token else environment


def hosted_environment(hosting: HostedSettings | None) -> dict[str, str]:
    """This process's environment, with what a hosted lab allows, or without it where the lab is not hosted."""
    environment = {name: value for name, value in os.environ.items() if name not in (HOSTED, PAGE_TOKEN)}
    return environment if hosting is None else {**environment, HOSTED: hosting.model_dump_json()}


def choose_port(host: str, wanted: int | None) -> int:
    """The wanted port, or the first free one from 8866.

    Raises:
        BadInput: it is in use.
    """
    if wanted is not None:
        if not _free(host, wanted):
            remedy = "Leave --port out to take the next free one, or end the program there."
            raise BadInput(f"Port {wanted} is in use.", remedy=remedy)
        return wanted
    last = DEFAULT_PORT + PORTS_TRIED - 1
    for port in range(DEFAULT_PORT, last + 1):
        if _free(host, port):
            return port
    raise BadInput(f"No port from {DEFAULT_PORT} to {last} is free.", remedy="Give one with --port.")


def _free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True


def open_browser(address: str) -> None:
    """Open the page where there is a screen; a text browser would take this terminal."""
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(address)


class PageServer:
    """The page's server. It ends with this process, even if that is killed.

    Args:
        command: see `voila_command`.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], host: str, port: int, base_url: str = "/"
    ) -> None:
        shown = "localhost" if host in ("127.0.0.1", *EVERY_ADDRESS) else f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{port}{base_url}"
        self._probe = f"http://127.0.0.1:{port}{base_url}" if shown == "localhost" and host != "::" else self.address
        self._child = subprocess.Popen(
            [sys.executable, "-m", "lab.backend.tether", str(os.getpid()), *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def check(self) -> None:
        """Raise `BackendUnavailable` if the server has ended."""
        code = self._child.poll()
        if code is not None:
            raise BackendUnavailable(
                f"The page's server ended (exit code {code}).", remedy="Its log is above; try `lab doctor`."
            )

    def wait_ready(self, timeout_s: float, stop: threading.Event) -> None:
        """Wait until it answers, or `stop` is set.

        Raises:
            BackendUnavailable: it ended, or did not answer in time.
        """
        import httpx  # here: no command should wait for it that starts no page

        deadline = time.monotonic() + timeout_s
        with httpx.Client(trust_env=False, timeout=2.0) as client:
            while not stop.is_set():
                self.check()
                with contextlib.suppress(httpx.HTTPError):
                    client.head(self._probe + READY_PROBE)  # any answer will do, and this one starts no kernel
                    return
                if time.monotonic() > deadline:
                    raise BackendUnavailable(
                        f"The page's server did not answer within {timeout_s:g} s.", remedy="Try `lab doctor`."
                    )
                stop.wait(POLL_S)

    def stop(self) -> None:
        """End it and its kernels."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(STOP_S)
