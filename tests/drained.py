"""Run a generator to its end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any


def drained(run: Generator[None, None, Any]) -> tuple[int, Any]:
    """The pauses of a run, and what it made."""
    pauses = 0
    while True:
        try:
            next(run)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1
