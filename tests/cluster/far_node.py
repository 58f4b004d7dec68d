"""A Ray cluster of two machines, as far as the network goes: the second node lives in a network namespace of its own.

The two see each other over a pair of virtual network interfaces alone: no loopback, address or port in common. The file
system and the cores are shared.
"""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from backend.toys import until
from free_port import free_port

RAY = Path(sys.executable).with_name("ray")
STORE = 100 * 1024 * 1024
"""Bytes of a node's object store: about the least that Ray takes."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "1000",  # a node that says nothing is given up after 3 s, not after some 20
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "PYTHONPATH": str(Path(__file__).parent.parent),
}
"""Of all processes of the cluster: a node or a driver without its token is refused."""


class NoNamespaces(Exception):
    """This machine gives none; says why."""


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Namespace:
    """A network of its own, and the two addresses of the line to it."""

    name: str
    near: str
    far: str

    @property
    def inode(self) -> int:
        """What tells networks apart."""
        return Path(f"/run/netns/{self.name}").stat().st_ino

    def processes(self) -> list[int]:
        return [int(pid) for pid in ip("netns", "pids", self.name).split()]

    def cut(self) -> None:
        """Take the line down: nobody is told, packets are lost."""
        ip("link", "set", f"{self.name}a", "down")

    def kill_all(self) -> None:
        """As if its machine had lost its power."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), "nothing is left in the namespace", 30)


def _free_line() -> tuple[str, str]:
    """Two addresses of a network that no interface here has."""
    taken = {a["local"] for link in json.loads(ip("-json", "-4", "address")) for a in link["addr_info"]}
    while True:
        network = ipaddress.ip_network((ipaddress.ip_address("10.213.0.0") + 4 * secrets.randbelow(2**14), 30))
        near, far = map(str, network.hosts())
        if not {near, far} & taken:
            return near, far


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Make one with a line to it; all of it, and what still runs there, goes at the end.

    Raises:
        NoNamespaces: this machine does not allow it.
    """
    if shutil.which("ip") is None:
        raise NoNamespaces("there is no `ip` here (iproute2)")
    if os.geteuid():
        raise NoNamespaces("network namespaces need root")
    name = f"lab{secrets.token_hex(4)}"
    here, there = f"{name}a", f"{name}b"
    near, far = _free_line()
    with ExitStack() as stack:
        try:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
            ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
            stack.callback(ip, "link", "delete", here)
        except OSError as error:
            raise NoNamespaces(str(error)) from None
        ip("address", "add", f"{near}/30", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "address", "add", f"{far}/30", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        ip("-n", name, "link", "set", "lo", "up")
        made = Namespace(name, near, far)
        stack.callback(made.kill_all)
        yield made


@contextmanager
def _ray_node(command: list[str], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One node, until the end; only its own processes are ended."""
    command = [*command, f"--object-store-memory={STORE}", "--disable-usage-stats", "--block"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env={**os.environ, **ENVIRONMENT})

    def is_up() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        return "Ray runtime started" in log.read_text()

    try:
        until(is_up, "the node is up", 90)
        yield process
    finally:
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        for one in psutil.wait_procs(family, timeout=3)[1]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(30)


@dataclass
class TwoNodes:
    """The cluster's address, and the second node."""

    address: str
    far: Namespace
    folder: Path

    @contextmanager
    def far_node(self) -> Iterator[None]:
        """The second node, once it has joined."""
        inside = ["ip", "netns", "exec", self.far.name]
        options = [f"--address={self.address}", f"--node-ip-address={self.far.far}", "--num-cpus=1"]
        with _ray_node([*inside, str(RAY), "start", *options], self.folder, self.folder / "far.log"):
            yield


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """The first node of one CPU, and a place for the second.

    Raises:
        NoNamespaces: this machine does not allow it.
    """
    # Not in pytest's folder: a socket's path has at most 107 characters.
    with namespace() as far, tempfile.TemporaryDirectory(prefix="ray-") as folder:
        port = free_port()
        head = [str(RAY), "start", "--head", f"--node-ip-address={far.near}", f"--port={port}", "--num-cpus=1"]
        more = ["--include-dashboard=false", f"--ray-client-server-port={free_port()}", f"--temp-dir={folder}"]
        with _ray_node([*head, *more], Path(folder), Path(folder) / "near.log"):
            yield TwoNodes(f"{far.near}:{port}", far, Path(folder))
