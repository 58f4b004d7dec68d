"""The supervisor of the model process: starts it, watches it, starts it again when it dies."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from lab.backend.http import HttpBackend
from lab.backend.malloc import MALLOC, THREADS
from lab.backend.serve import address_of, listen
from lab.errors import BackendUnavailable
from lab.settings import BACKEND_TOKEN

log = logging.getLogger(__name__)

SERVE = (sys.executable, "-m", "lab.backend.serve")

BACKOFF_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 60.0
"""A process that lived so long is not counted as failing at start."""
STOP_S = 8.0
POLL_S = 0.1


class ModelProcess:
    """The model process under supervision. Address and token stay the same over restarts.

    The listening socket belongs to this process and is handed to each child: no other program can take
    the port between two of them, and who connects meanwhile waits in its backlog.

    Args:
        command: what to start; `--fd N` is appended.
        environment: of the child; this process's own if None. The malloc and thread settings yield to it.
        restarted: told in words each time the process had to be started again.
        output: where the child's log goes; this process's stderr if None.
    """

    def __init__(
        self,
        command: Sequence[str] = SERVE,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        environment: Mapping[str, str] | None = None,
        restarted: Callable[[str], None] = log.warning,
        output: IO[bytes] | None = None,
        backoff_s: Sequence[float] = BACKOFF_S,
    ) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self._command = list(command)
        self._socket = listen(host, port)
        self.url = address_of(self._socket)
        self._environment = dict(os.environ if environment is None else environment)
        self._restarted = restarted
        self._output = output
        self._backoff_s = backoff_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """Process id of the living child."""
        with self._lock:
            return self._child.pid if self._child is not None and self._child.poll() is None else None

    def start(self) -> None:
        """Start the process and its watch; returns at once. See `wait_ready`."""
        self._spawn()
        self._watcher = threading.Thread(target=self._watch, name="lab-supervisor", daemon=True)
        self._watcher.start()

    def wait_ready(self, timeout_s: float = 60.0, progress: Callable[[float], None] = lambda _: None) -> None:
        """Wait until the process answers.

        Args:
            progress: told the seconds waited so far, a few times a second.

        Raises:
            BackendUnavailable: it did not answer in time, or ended.
        """
        began = time.monotonic()
        backend = HttpBackend(self.url, self.token)
        with contextlib.closing(backend):
            while (waited := time.monotonic() - began) < timeout_s:
                progress(waited)
                with contextlib.suppress(BackendUnavailable):
                    backend.health(timeout_s=1.0)
                    return
                if self._stopping.wait(POLL_S):
                    break
        raise BackendUnavailable(
            f"The model process did not answer within {timeout_s:g} s.", remedy="Its log is above; try `lab doctor`."
        )

    def stop(self) -> None:
        """End the process: first asked, then killed. Closes the port."""
        self._stopping.set()
        with self._lock:
            child = self._child
        if child is not None:
            _end(child)
        if self._watcher is not None:
            self._watcher.join(STOP_S)
        self._socket.close()

    def __enter__(self) -> ModelProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self) -> None:
        fd = self._socket.fileno()
        environment = {**MALLOC, **THREADS, **self._environment, BACKEND_TOKEN: self.token}
        child = subprocess.Popen(
            [*self._command, "--fd", str(fd)],
            stdin=subprocess.PIPE,  # never written to: its end tells the child that this process has died
            stdout=self._output,
            stderr=self._output,
            env=environment,
            pass_fds=(fd,),
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the child in order
        )
        with self._lock:
            self._child = child
            stopping = self._stopping.is_set()
        if stopping:
            _end(child)

    def _watch(self) -> None:
        quick = 0
        while not self._stopping.is_set():
            with self._lock:
                child = self._child
            if child is None:
                return
            began = time.monotonic()
            code = child.wait()
            _close_pipe(child)
            if self._stopping.is_set():
                return
            quick = 0 if time.monotonic() - began > STEADY_S else quick + 1
            wait_s = self._backoff_s[min(quick, len(self._backoff_s)) - 1] if quick else 0.0
            self.restarts += 1
            try:
                self._restarted(f"The model process ended ({_how(code)}); it is started again.")
            except Exception:
                log.exception("telling of a restart failed")
            if self._stopping.wait(wait_s):
                return
            try:
                self._spawn()
            except OSError as error:
                log.error("the model process cannot be started: %s", error.strerror)
                return


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name}: out of memory?" if name == "SIGKILL" else name


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    _close_pipe(child)


def _close_pipe(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
