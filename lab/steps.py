"""Work that pauses: a generator of steps that returns its result."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def finished(steps: Generator[Any, None, T]) -> T:
    """What a method, or any other generator of steps, returns: run to its end at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
