"""The lab as Binder runs it, under Binder's 2 GB: `python -m benchmarks.binder_memory [--json]`.

`binder/start` with `binder/jupyter_config.json`, one Jupyter server on loopback with Voila as its extension, and a real
Chromium (not counted): the index, a replay, then live KV cache, beam search and speculative runs, two pages at a time,
each until its proof. The limit is applied by `benchmarks.memory_watch`: the tree is killed when it passes it.
Not run here: the conda environment of `binder/environment.yml`, and Binder itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.memory_watch import MIB, MemoryWatch, in_words
from lab.paths import models_dir

ROOT = Path(__file__).resolve().parents[1]
LIMIT_BYTES = 2_000_000_000
"""Binder says 2 GB; the smaller reading."""
READY_S = 60.0
PAGE_MS = 90_000


@dataclass
class BinderServer:
    """A Jupyter server as Binder starts it. `url` is a page's address; `watch` is its memory."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    watch: MemoryWatch

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def page(self, name: str, **query: str) -> str:
        """A notebook's page, as the links of the README have it."""
        more = "&".join(f"{key}={value}" for key, value in query.items())
        return self.url(f"voila/render/notebooks/{name}.ipynb" + (f"?{more}" if more else ""))

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4000:]


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_until(condition: Callable[[], object], seconds: float, what: Callable[[], str]) -> None:
    """Look again and again.

    Raises:
        TimeoutError: it did not come true.
    """
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what())
        pause.wait(0.05)


def binder_environment(home: Path) -> dict[str, str]:
    """What Binder's container gives, with a cache of its own that shares the converted models."""
    cache = home / "cache"
    cache.mkdir(parents=True)
    (cache / "models").symlink_to(models_dir())
    settings = home / "settings"
    settings.mkdir()
    shutil.copy(ROOT / "binder" / "jupyter_config.json", settings)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LAB_", "JUPYTER"))}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LAB_CACHE_DIR": str(cache),
        "LAB_BINDER_PORT": str(free_port()),
        "JUPYTER_CONFIG_DIR": str(settings),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
    }


@contextmanager
def binder_server(home: Path, limit_bytes: int = LIMIT_BYTES) -> Iterator[BinderServer]:
    """`binder/start jupyter server`, in the repository's folder, under the limit."""
    port, log = free_port(), home / "binder.log"
    environment = binder_environment(home)
    options = ["--no-browser", "--allow-root", "--IdentityProvider.token=", "--ip=127.0.0.1"]
    options += [f"--port={port}", "--ServerApp.port_retries=0"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(ROOT / "binder" / "start"), sys.executable, "-m", "jupyter", "server", *options],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with MemoryWatch(process.pid, limit_bytes) as watch:
            server = BinderServer(process, port, log, watch)
            wait_until(lambda: process.poll() is not None or _answers(server), READY_S, server.said)
            if process.poll() is not None:
                raise RuntimeError(server.said())
            yield server
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server, its kernels (which have sessions of their own) and the model process with its loop."""
    tree = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        _, tree = psutil.wait_procs(tree, timeout=10)
    for left in tree:
        with contextlib.suppress(psutil.Error):
            left.kill()


def _answers(server: BinderServer) -> bool:
    try:
        return httpx.get(server.url("api"), timeout=2.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


@dataclass
class Report:
    """What a visit took. Bytes are sums of proportional set sizes over the whole tree."""

    limit_bytes: int
    steps: list[tuple[str, int]] = field(default_factory=list)
    peak_bytes: int = 0
    peak_parts: dict[str, int] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)

    def note(self, step: str, watch: MemoryWatch) -> None:
        """What all takes after a step, and the peak so far."""
        self.steps.append((step, watch.parts.total()))
        self.peak_bytes, self.peak_parts = watch.peak_bytes, dict(watch.peak_parts)


def visit(server: BinderServer, browser: Any) -> Report:
    """The index, a replay, and three live runs with two pages open, each until its proof stands there.

    Raises:
        playwright's TimeoutError: something did not appear; MemoryError: the limit was passed.
    """
    report = Report(server.watch.limit_bytes)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        index = context.new_page()
        index.goto(server.page("index"))
        index.get_by_role("link", name="KV cache").first.wait_for(timeout=PAGE_MS)
        report.note("index", server.watch)
        index.goto(server.page("kv_cache", autorun="0"), wait_until="commit")
        _wait_mode(index, "RECORDED")
        report.note("replay", server.watch)
        index.close(run_before_unload=True)
        first, second = context.new_page(), context.new_page()
        first.goto(server.page("kv_cache"), wait_until="commit")
        second.goto(server.page("beam_search"), wait_until="commit")
        for page, name in ((first, "kv_cache"), (second, "beam_search")):
            report.proofs[name] = _wait_proof(page)
        report.note("KV cache and beam search, live, two pages", server.watch)
        first.goto(server.page("speculative"), wait_until="commit")
        report.proofs["speculative"] = _wait_proof(first)
        report.note("speculative decoding, live, beside the page of beam search", server.watch)
    except Exception as error:
        if server.watch.passed:
            raise MemoryError(
                f"passed {server.watch.limit_bytes / MIB:,.0f} MiB: {in_words(server.watch.parts)}"
            ) from error
        raise
    finally:
        context.close()
    return report


def _wait_mode(page: Any, mode: str) -> None:
    page.locator(".lab-plot[data-ready]").first.wait_for(timeout=PAGE_MS)
    page.locator(".lab-mode", has_text=mode).wait_for(timeout=PAGE_MS)


def _wait_proof(page: Any) -> str:
    """Wait until a live run is proved. The words of its proof."""
    _wait_mode(page, "LIVE")
    proof = page.locator(".lab-proof[data-verdict=equal], .lab-proof[data-verdict=tie]")
    proof.wait_for(timeout=PAGE_MS)
    words: str = proof.inner_text()
    return words


def main() -> int:
    """Print what the visit took; 1 if the limit was passed."""
    from playwright.sync_api import sync_playwright

    from tests.chromium import find

    path = find()
    if path is None:
        print("This needs Chromium: run `python -m tests.chromium`.")
        return 2
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        with binder_server(Path(folder)) as server:
            try:
                report = visit(server, browser)
            except MemoryError as error:
                print(error)
                return 1
        browser.close()
    if "--json" in sys.argv[1:]:
        print(json.dumps(report.__dict__))
        return 0
    for step, size in report.steps:
        print(f"{size / MIB:7,.0f} MiB  {step}")
    print(f"{report.peak_bytes / MIB:7,.0f} MiB  peak, of {report.limit_bytes / MIB:,.0f} MiB allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
