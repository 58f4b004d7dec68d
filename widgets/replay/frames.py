"""The weights after each column, from what an event tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Frame:
    """The weights after step `step`: the columns up to it are done, the others have moved.

    Attributes:
        now: (row, step). moved: now - original.
        pushed: (row, step): what this step alone did to the later columns.
    """

    step: int
    now: Array
    moved: Array
    pushed: Array


class Replayed(Protocol):
    """All frames of one replay.

    Attributes:
        original: (row, step): the weights as they were at first.
        rows: their numbers in the matrix.
        steps: columns shown.
        largest: the largest change of a weight in the last frame: the scale of all of them.
    """

    original: Array

    @property
    def rows(self) -> tuple[int, ...]: ...

    @property
    def steps(self) -> int: ...

    @property
    def largest(self) -> float: ...

    def at(self, step: int) -> Frame:
        """The frame after `step`, 0 the first."""
        ...


def frame_at(step: int, original: Array, at_turn: Array, values: Array, error: Array, spread: Array) -> Frame:
    """The frame after `step`: from a column's turn back, what is still to come is taken off.

    Args:
        original, at_turn, values, error: (row, step). spread: (step, step), what a step adds to each later column.
    """
    done = step + 1
    now = at_turn + error[:, done:] @ np.triu(spread, 1)[done:, :]
    now[:, :done] = values[:, :done]
    pushed = -np.outer(error[:, step], spread[step])
    pushed[:, :done] = 0.0
    return Frame(step, now, now - original, pushed)


def largest_change(values: Array, original: Array) -> float:
    """Of all weights, 0 where there are none."""
    change = np.abs(values - original)
    return float(change.max()) if change.size else 0.0
