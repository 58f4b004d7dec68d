"""Kernels forked from a process that has imported what pages need; a page's kernel is there in a fraction of the time.

Only where forking is safe, which is Linux; elsewhere, and where it fails, kernels start as they always do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

NAME = "inference-lab-forked"
LAUNCHER = ["-m", "ipykernel_launcher"]
"""What follows the interpreter in the command of a Python kernel."""
STILL_S = 60.0
"""A fork server that has not answered for so long is not waited for: its imports take about two."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""NumPy's library would start threads when it is imported. Kernels compute nothing."""


class ForkedProcess:
    """What `subprocess.Popen` is to its caller, for a process that is not this one's child.

    Attributes:
        pid: its number; the process leads a group and a session of that number.
        returncode: None while it runs; then -1, for only its parent learns more.
    """

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.returncode = -1

    def poll(self) -> int | None:
        """`returncode`, looked up."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """`returncode`, waited for.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        code = self._look(None if timeout is None else int(timeout * 1000))
        if code is None:
            raise subprocess.TimeoutExpired(f"kernel {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_ms: int | None) -> int | None:
        if self.returncode is None:
            poller = select.poll()
            poller.register(self._fd, select.POLLIN)
            if poller.poll(timeout_ms):
                self.returncode = -1
                os.close(self._fd)
        return self.returncode


class ForkServer:
    """The process that forks, from this side. It is started when it is needed, and again if it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def start(self) -> None:
        """Start it if it does not run; it imports while others go on."""
        with self._lock:
            self._start()

    def fork(self, argv: Sequence[str], cwd: str, environment: Mapping[str, str]) -> ForkedProcess:
        """A new kernel.

        Args:
            argv: of the kernel's application, such as "-f" and its connection file.

        Raises:
            OSError: no process could be forked.
        """
        request = {"argv": list(argv), "cwd": cwd, "environment": dict(environment)}
        with self._lock:
            connection = self._start()
            try:
                connection.sendall(json.dumps(request).encode() + b"\n")
                answer = b""
                while not answer.endswith(b"\n"):
                    part = connection.recv(4096)
                    if not part:
                        raise ConnectionResetError("the fork server ended")
                    answer += part
            except OSError:
                self._stop()  # what it would still say belongs to no request
                raise
        return ForkedProcess(json.loads(answer)["pid"])

    def stop(self) -> None:
        """End it; its kernels end with it."""
        with self._lock:
            self._stop()

    def _start(self) -> socket.socket:
        if self._connection is not None and self._process is not None and self._process.poll() is None:
            return self._connection
        self._stop()
        here, there = socket.socketpair()
        here.settimeout(STILL_S)
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "widgets.voila.fork_server", str(there.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                start_new_session=True,  # Ctrl-C is for the lab, which ends it
                env={**os.environ, **ONE_THREAD},
            )
        self._connection = here
        return here

    def _stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._connection = self._process = None


SERVER = ForkServer()
"""That of this process."""


class ForkedProvisioner(LocalProvisioner):
    """Launches a kernel by forking."""

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        """Launch the kernel; as the base class does where it cannot be forked."""
        if cmd[1:3] == LAUNCHER:
            cwd = str(options.get("cwd") or Path.cwd())
            environment = {**(options.get("env") or os.environ), "JPY_PARENT_PID": ""}
            try:
                forked = await asyncio.to_thread(SERVER.fork, cmd[3:], cwd, environment)
            except OSError as error:
                self.log.warning("A kernel could not be forked and starts by itself: %s", error)
            else:
                self.process = forked  # type: ignore[assignment]
                self.pid = self.pgid = forked.pid
                self.cwd = cwd
                return self.connection_info
        return await super().launch_kernel(cmd, **options)


def fork_kernels() -> bool:
    """Let this process's kernels be forked from now on, and start what forks them. False where forking is not safe."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return False
    factory = KernelProvisionerFactory.instance()
    factory.provisioners[NAME] = EntryPoint(NAME, f"{__name__}:ForkedProvisioner", KernelProvisionerFactory.GROUP_NAME)
    factory.default_provisioner_name = NAME
    SERVER.start()
    return True
