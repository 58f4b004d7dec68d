"""`lab` as a user starts it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

Lab = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(cache: Path) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("LAB_")}
    paths = f"{TESTS.parent}{os.pathsep}{TESTS}"
    return {**inherited, "LAB_CACHE_DIR": str(cache), "PYTHONPATH": paths, "COLUMNS": "200", "TERM": "dumb"}


def start(
    cache: Path, *args: str, module: str = "cli.toy_lab", extra: dict[str, str] | None = None, **more: object
) -> subprocess.Popen[str]:
    """A `lab` that goes on while the test looks at it."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    command = [sys.executable, "-m", module, *args]
    env = {**environment(cache), **(extra or {})}
    return subprocess.Popen(command, env=env, text=True, **streams)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Run `lab ARGS` (with the toy experiment) in `tmp_path` to its end."""

    def run(*args: str, module: str = "cli.toy_lab", **more: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [sys.executable, "-m", module, *args],
            env=environment(tmp_path / "cache"),
            cwd=tmp_path,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
            **more,
        )

    return run
