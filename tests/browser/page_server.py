"""The pages' server alone, over a folder of small notebooks: no model process, no torch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from free_port import free_port
from kernels import kernels_of
from lab_server import wait_until

from lab.experiments.registry import EXPERIMENTS

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@dataclass
class Served:
    """A running server of pages."""

    process: subprocess.Popen[bytes]
    port: int

    def url(self, path: str = "/") -> str:
        return f"http://localhost:{self.port}{path}"

    def page(self, name: str) -> str:
        return self.url(f"/voila/render/{name}.ipynb")

    def kernels(self) -> list[psutil.Process]:
        return kernels_of(self.process.pid)


def write_notebooks(folder: Path, cells: Mapping[str, str]) -> None:
    """The real index, and beside it a notebook of one cell for each name."""
    folder.mkdir(parents=True)
    shutil.copy(NOTEBOOKS / "index.ipynb", folder)
    for name, code in cells.items():
        notebook = json.loads((NOTEBOOKS / "kv_cache.ipynb").read_text(encoding="utf-8"))
        notebook["cells"][1]["source"] = [code]
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


@contextmanager
def serving(folder: Path, cells: Mapping[str, str]) -> Iterator[Served]:
    """Serve the index, a quiet page in place of each experiment's, and the pages of `cells`."""
    write_notebooks(folder / "notebooks", {**dict.fromkeys(EXPERIMENTS, "pass"), **cells})
    port = free_port()
    log = folder / "page.log"
    command = [sys.executable, "-m", "widgets.voila.server", "--port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--notebooks", str(folder / "notebooks")],
            env={**os.environ, "LAB_CACHE_DIR": str(folder / "cache")},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            return httpx.head(f"http://localhost:{port}/", trust_env=False).status_code < 500
        except httpx.HTTPError:
            return False

    try:
        wait_until(answers, 60, "the pages' server does not answer")
        yield Served(process, port)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
