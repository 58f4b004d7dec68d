"""The views in a process of their own: nothing here imports them, and in a notebook none of their widgets travel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from lab.errors import BY_CODE, LabError, Unavailable
from lab.settings import REPLAY

TIMEOUT_S = 180.0
"""What is asked for takes a few seconds; on a machine that is busy with other runs, many more."""


def run_views(
    module: str, *arguments: str, what: str, settings: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> str:
    """Run `python -m MODULE ARGUMENTS`; what it printed.

    Args:
        what: it makes, as the beginning of an error's sentence: "The page".
        settings: environment variables beside this process's own.

    Raises:
        LabError: as the process told it, see `tell`.
        Unavailable: it took longer than `timeout_s`, or the process was killed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in (REPLAY, "QUERY_STRING")}
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(
            command,
            env={**environment, **(settings or {})},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"{what} was not made within {timeout_s:g} s.", remedy="Try again when less runs on this machine."
        ) from None
    if done.returncode:
        raise _error(done.stderr, done.returncode, what)
    return done.stdout


def tell(error: LabError) -> int:
    """Called in that process: write the error as the last line of stderr; the exit code that it ends with."""
    sys.stderr.write(f"{json.dumps({'code': error.code, 'message': error.message, 'remedy': error.remedy})}\n")
    return error.exit_code


def _error(told: str, code: int, what: str) -> LabError:
    """The error that the process told; where it told none, that it ended."""
    last = told.strip().rpartition("\n")[2]
    try:
        found = json.loads(last)
        return BY_CODE[found["code"]](found["message"], remedy=found["remedy"])
    except (ValueError, KeyError, TypeError):
        why = f"exit code {code}: {last}" if last else f"exit code {code}"
        return Unavailable(f"{what} could not be made ({why}).", remedy="Run `lab doctor` in a terminal.")
