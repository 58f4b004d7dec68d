"""A directory is whole or not there, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lab.models.atomic import build_directory

# Builds TARGET with a file of the builder's pid; notes each build; waits in the middle while GATE exists.
BUILDER = """
import sys, threading
from pathlib import Path
from lab.models.atomic import build_directory
target, log, gate = map(Path, sys.argv[1:4])
def build(directory):
    with log.open("a") as file:
        file.write("build\\n")
    (directory / "half").write_text("half")
    while gate.exists():
        threading.Event().wait(0.01)
    (directory / "whole").write_text("whole")
build_directory(target, build, is_complete=lambda d: (d / "whole").is_file())
"""


def start(*args: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BUILDER, *map(str, args)])


def wait_for(condition: object, seconds: float = 20) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        threading.Event().wait(0.01)


def partials(place: Path) -> list[Path]:
    return list(place.glob(".partial-*"))


def is_complete(directory: Path) -> bool:
    return (directory / "whole").is_file()


def test_two_starts_build_once(tmp_path: Path) -> None:
    target, log, gate = tmp_path / "model", tmp_path / "log", tmp_path / "gate"
    gate.touch()
    both = [start(target, log, gate) for _ in range(2)]
    wait_for(log.exists)
    assert not target.exists()  # nothing half is ever visible under the name
    gate.unlink()
    assert [process.wait(20) for process in both] == [0, 0]
    assert log.read_text() == "build\n"
    assert is_complete(target)
    assert partials(tmp_path) == []


def test_a_killed_build_leaves_nothing_that_counts(tmp_path: Path) -> None:
    target, log, gate = tmp_path / "model", tmp_path / "log", tmp_path / "gate"
    gate.touch()
    process = start(target, log, gate)
    wait_for(log.exists)
    wait_for(lambda: partials(tmp_path))
    os.kill(process.pid, signal.SIGKILL)
    process.wait(20)
    assert not target.exists()
    assert len(partials(tmp_path)) == 1
    build_directory(target, lambda d: (d / "whole").write_text("x") and None, is_complete=is_complete)
    assert is_complete(target)
    assert partials(tmp_path) == []  # the next builder swept the dead one's remains


def test_a_failing_build_leaves_nothing(tmp_path: Path) -> None:
    def build(directory: Path) -> None:
        (directory / "half").write_text("half")
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        build_directory(tmp_path / "model", build, is_complete=is_complete)
    assert not (tmp_path / "model").exists()
    assert partials(tmp_path) == []


def test_an_incomplete_directory_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "stale").write_text("")
    build_directory(target, lambda d: (d / "whole").write_text("x") and None, is_complete=is_complete)
    assert [p.name for p in target.iterdir()] == ["whole"]
