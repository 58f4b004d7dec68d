"""Parts of a run, and how far it is. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TypeVar

from lab.events import Event, Progress

T = TypeVar("T")
Part = Generator[Event | None, None, None]
"""A part of a run: events, and None where a slice may end without one."""
Made = Generator[Event | None, None, T]
"""The same, with a result."""


def progress(stage: str, done: float, total: float) -> Progress:
    """`done` of `total` as thousandths."""
    return Progress(stage=stage, done=min(1000, round(1000 * done / total)), total=1000)


def numbered(run: Made[T], plan: Sequence[str]) -> Made[T]:
    """A run whose progress says which stage of how many it is.

    Args:
        plan: the words of the stages in their order, "*" for whatever differs. One that does not come is passed over;
            a word that is not in it belongs to the stage before.
    """
    at = 0
    try:
        while True:
            event = next(run)
            if isinstance(event, Progress) and plan:
                there = (i for i in range(at, len(plan)) if fnmatchcase(event.stage, plan[i]))
                at = next(there, at)
                event = replace(event, number=at + 1, stages=len(plan))
            yield event
    except StopIteration as end:
        found: T = end.value
        return found
    finally:
        run.close()


def shares(stage: str, done: float = 0, total: float = 1, part: float = 1) -> Callable[[float], Progress | None]:
    """For `lab.steps.relay`: a share of this stage, 0 to 1, as progress; a mere pause where nothing moved.

    How often the work pauses may depend on the clock: a share that was told is not told again.

    Args:
        done, total, part: of the progress bar: the stage is `part` steps of `total`, after `done` others.
    """
    last: Progress | None = None

    def say(share: float) -> Progress | None:
        nonlocal last
        found = progress(stage, done + part * share, total)
        if found == last:
            return None
        last = found
        return found

    return say
