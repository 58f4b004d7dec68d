"""The centre of the `pruning` page: the sections of the task that the run on screen does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.events import ModelFacts
from widgets.experiment import Desk
from widgets.pruning import lesson
from widgets.pruning.sentences import intro
from widgets.pruning.state import PruningState
from widgets.section_views import SectionViews

_MODEL = ("map_section:MapSection", "coverage_section:CoverageSection")
LAYOUT: dict[str, tuple[str, ...]] = {
    "masks": (
        "masks_section:MasksSection",
        "errors_section:ErrorsSection",
        "replay_section:ReplaySection",
        "storage_section:StorageSection",
        *_MODEL,
        "example_section:ExampleSection",
    ),
    "curve": ("curve_section:CurveSection", *_MODEL, "storage_section:StorageSection"),
    "words": ("words_section:WordsSection", *_MODEL, "storage_section:StorageSection"),
    "savings": ("savings_section:SavingsSection", "storage_section:StorageSection", *_MODEL),
    "recover": ("recovery_section:RecoverySection", *_MODEL, "storage_section:StorageSection"),
}
UNITS = {"masks": "mask", "curve": "point", "words": "token", "savings": "token", "recover": "step"}


class PruningViews(SectionViews[PruningState]):
    """All pictures of one run, drawn from one state. Steps are what `PruningState.steps` counts."""

    package = "widgets.pruning"
    layout = LAYOUT
    units = UNITS

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, PruningState)

    def intro(self) -> Sequence[str]:
        return intro(self.state)

    def lesson_of(self, facts: ModelFacts | None, example: dict[str, Any] | None) -> list[dict[str, Any]]:
        del facts
        return lesson.sections(self._desk.words, example)

    def planned(self, steps: int) -> int:
        state = self.state
        match state.task:
            case "curve":
                return max(steps, state.curve[-1].total if state.curve else 0)
            case "words" | "savings":
                return max(steps, int(state.param("max_new_tokens", 1)))
            case "recover":
                return max(steps, int(state.param("steps", 1)))
        return steps
