"""The lab on a cluster of toys, in a process of its own, and what a test asks of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from free_port import free_port

from lab.backend.http import HttpBackend, HttpStream
from lab.backend.protocol import InspectRequest, RunRequest
from lab.errors import Unavailable
from lab.events import RunStarted
from lab.settings import BACKEND_TOKEN

TOKEN = "a-token-of-the-tests"


@dataclass
class Cluster:
    url: str
    closed: Path
    process: subprocess.Popen[str]

    def replicas(self) -> list[psutil.Process]:
        """Processes of the replicas of "toy" on this machine: Ray names them after their deployment."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [
            one
            for one in children
            if "ServeReplica" in "".join(one.cmdline()) and "model-toy" in "".join(one.cmdline())
        ]

    def states(self) -> dict[str, int]:
        """How many replicas of "toy" are in which state, as Serve has it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("states\n")
        self.process.stdin.flush()
        # Ray says things there too, of nodes that went away.
        line = next(line for line in self.process.stdout if line.startswith("{"))
        found: dict[str, int] = json.loads(line)
        return found

    def end(self) -> None:
        """Take the lab off, as a signal does."""
        end(self.process)

    def was_closed(self, label: str) -> bool:
        return self.closed.exists() and label in self.closed.read_text().split()


def end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(90) == 0


@contextmanager
def toy_cluster(folder: Path, environment: Mapping[str, str] | None = None, **settings: Any) -> Iterator[Cluster]:
    """Start one, or join `address`, and wait until its replicas answer."""
    own = {BACKEND_TOKEN: TOKEN, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "cluster_server", str(free_port()), str(folder / "closed"), json.dumps(settings)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **own, **(environment or {})},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url, (folder / "log").read_text()[-2000:]
            yield Cluster(url, folder / "closed", process)
        finally:
            end(process)


def ask_for(**params: object) -> RunRequest:
    return RunRequest(experiment="count", model="toy", params=dict(params))


@dataclass
class Held:
    """A run that goes on until its stream is closed."""

    label: str
    run_id: str
    stream: HttpStream


def hold(http: HttpBackend, label: str) -> Held:
    """Start one; it may have to wait for its turn."""
    stream = http.run(ask_for(hold=True, label=label))
    began = next(event for event in stream if isinstance(event, RunStarted))
    return Held(label, began.run_id, stream)


@dataclass(frozen=True)
class Place:
    """Where a run runs: the process and the network of its replica, and the run's label as that one tells it."""

    label: str
    pid: int
    network: int


def place_of(http: HttpBackend, run_id: str) -> Place | None:
    """What the replica of a run says of itself; None while the run waits for its turn."""
    try:
        told = http.inspect(InspectRequest(experiment="count", model="toy", name="ask", run_id=run_id))
    except Unavailable:
        return None
    return Place(told["label"], told["pid"], told["network"])
