"""The limit is a limit: a tree of processes that passes it together is killed, one that stays below lives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from backend.toys import until

from benchmarks.memory_watch import MIB, MemoryWatch, kind_of, pss_bytes

HOLD = "import sys; held = bytearray(b'x') * ({size} * 2**20); print('held', flush=True); sys.stdin.read()"
TREE = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', {hold!r}], stdin=subprocess.PIPE)\n"
    "child.wait()\n"
)


@contextmanager
def two_that_hold(size_mib: int) -> Iterator[subprocess.Popen[str]]:
    """Two processes, one below the other, each with so much memory of its own."""
    hold = HOLD.format(size=size_mib)
    code = f"held = bytearray(b'x') * ({size_mib} * 2**20)\n" + TREE.format(hold=hold)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize(("limit_mib", "passed"), [(160, True), (400, False)])
def test_a_tree_is_killed_for_what_it_takes_together(limit_mib: int, passed: bool) -> None:
    with two_that_hold(100) as process, MemoryWatch(process.pid, limit_mib * MIB) as watch:
        assert process.stdout is not None
        until(lambda: watch.passed or watch.parts.total() > 200 * MIB, "both hold theirs", 30)
        looks = watch.looks
        until(lambda: watch.passed or watch.looks > looks + 3, "a few more looks", 30)
        assert watch.passed == passed
        if passed:
            until(lambda: process.poll() is not None, "its end", 10)
    assert (watch.peak_bytes > limit_mib * MIB) == passed


FORK = f"held = bytearray(b'x') * {100 * MIB}; import os, sys; os.fork(); os.write(1, b'held\\n'); sys.stdin.read()"


def test_pages_that_two_processes_share_count_once() -> None:
    command = [sys.executable, "-c", FORK]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["held\n"] * 2
    both = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
    assert len(both) == 2
    assert sum(p.memory_info().rss for p in both) > 200 * MIB
    assert 100 * MIB < sum(pss_bytes(p.pid) for p in both) < 150 * MIB
    process.communicate(timeout=10)
    assert pss_bytes(process.pid) == 0


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["python", "-m", "ipykernel_launcher", "-f", "/x/jupyter/kernel.json"], "kernel"),
        (["python", "/bin/lab", "serve", "--port", "1"], "model process"),
        (["python", "-m", "lab.backend.serve", "--fd", "3"], "model process"),
        (["cat"], "other"),
        (["python", "-m", "jupyter", "server"], "server"),
    ],
)
def test_processes_are_told_apart(command: list[str], kind: str) -> None:
    assert kind_of(command) == kind
