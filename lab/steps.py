"""Work that pauses: a generator of steps that returns its result."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
E = TypeVar("E")
T = TypeVar("T")


def finished(steps: Generator[Any, None, T]) -> T:
    """What a method, or any other generator of steps, returns: run to its end at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def relay(steps: Generator[S, None, T], say: Callable[[S], E]) -> Generator[E, None, T]:
    """The same steps told otherwise, and their result. The steps are closed when this is.

    Args:
        say: what to yield for a step; None may stand for a mere pause.
    """
    try:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            yield say(step)
    finally:
        steps.close()


def paused(step: object) -> None:
    """For `relay`: each step is a mere pause."""
    del step
