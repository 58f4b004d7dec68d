"""A real `lab up` for the browser tests: the real model process, a real Voila, thin kernels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from free_port import free_port
from kernels import kernels_of

from lab.paths import models_dir


@dataclass
class Lab:
    """A running `lab up`."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def page(self, **query: str) -> str:
        more = "&".join(f"{key}={value}" for key, value in query.items())
        return f"http://localhost:{self.port}/voila/render/kv_cache.ipynb" + (f"?{more}" if more else "")

    def url(self, path: str) -> str:
        return f"http://localhost:{self.port}{path}"

    def children(self, word: str) -> list[psutil.Process]:
        """Processes of this lab whose command line has `word`."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if word in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kernels(self) -> list[psutil.Process]:
        return kernels_of(self.process.pid)


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Look again and again; a condition, not a clock, ends the wait."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(0.05)


@contextmanager
def running_lab(cache: Path, *arguments: str, **more: str) -> Iterator[Lab]:
    """`lab up ARGUMENTS` with a cache of its own that shares the converted models; `more` of its environment."""
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "models").symlink_to(models_dir())
    port = free_port()
    log = cache / "lab.log"
    environment = {**os.environ, "LAB_CACHE_DIR": str(cache)}
    for name in ("LAB_BACKEND_URL", "LAB_BACKEND_TOKEN", "LAB_REPLAY"):
        environment.pop(name, None)
    environment |= more
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("lab")), "up", "--no-browser", "--port", str(port), *arguments],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "ready after" in log.read_text() or process.poll() is not None, 120, "lab up is not ready")
        assert process.poll() is None, log.read_text()[-4000:]
        yield Lab(process, port, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
