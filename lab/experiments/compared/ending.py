"""When a training ends before its last step: somebody asked for it, or it would take too long. No torch here."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from lab.errors import Unavailable
from lab.experiments.base import Question, RunContext

MOST_SECONDS = 600.0
"""Of a training: then it ends with the best so far, before a backend's deadline ends the run with nothing."""
_KEY = "ending"


class EnoughQuestion(Question):
    """End a training with the best so far; the run goes on with it."""


class Ending:
    """Of the training in one run; it begins with this.

    Attributes:
        going: the training is going on; whoever runs it sets this to False when it ends.
        asked: somebody asked for its end.
    """

    def __init__(self, context: RunContext) -> None:
        self.going, self.asked = True, False
        self._late = perf_counter() + MOST_SECONDS
        context.kept[_KEY] = self

    def due(self) -> bool:
        """Whether to end the training, see `TrainingLoop.end`: a first step is taken all the same."""
        return self.asked or perf_counter() > self._late

    def why(self, ended: str) -> str:
        """Why it ended early, in words, from why it ended ("steps", "stopped" or "not_finite"); "" if it did not."""
        if ended == "stopped" and not self.asked:
            return f"{MOST_SECONDS / 60:g} minutes were over"
        return {"steps": "", "stopped": "stopped", "not_finite": "the loss was no number"}[ended]


def enough(context: RunContext | None) -> dict[str, Any]:
    """The answer to `EnoughQuestion`. `training`: whether one was going on, which now ends.

    Raises:
        Unavailable: there is no run, or it has nothing yet.
    """
    if context is None or not context.kept:
        raise Unavailable("There is no training that could end.", remedy="Run one first, then ask.")
    ending = context.kept.get(_KEY)
    if not isinstance(ending, Ending) or not ending.going:
        return {"training": False}
    ending.asked = True
    return {"training": True}
