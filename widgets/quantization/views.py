"""The centre of the `quantization` page: the sections of the task that the run on screen does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.events import ModelFacts
from widgets.experiment import Desk
from widgets.quantization import lesson
from widgets.quantization.group_section import GroupSection
from widgets.quantization.histogram_section import HistogramSection
from widgets.quantization.sentences import intro
from widgets.quantization.state import QuantizationState
from widgets.section import Section
from widgets.section_views import SectionViews

LAYOUT: dict[str, tuple[str, ...]] = {
    "layer": (
        "histogram_section:HistogramSection",
        "group_section:GroupSection",
        "replay_section:ReplaySection",
        "scale_search_section:ScaleSearchSection",
        "outliers_section:OutliersSection",
        "levels_section:LevelsSection",
        "errors_section:ErrorsSection",
        "activations_section:ActivationsSection",
        "formats_section:FormatsSection",
        "coverage_section:CoverageSection",
        "storage_section:StorageSection",
        "example_section:ExampleSection",
    ),
    "map": (
        "map_section:MapSection",
        "map_section:SensitivitySection",
        "map_section:MixedSection",
        "coverage_section:CoverageSection",
        "storage_section:StorageSection",
    ),
    "pareto": ("pareto_section:ParetoSection", "storage_section:StorageSection"),
    "words": ("words_section:WordsSection", "coverage_section:CoverageSection"),
    "packed": ("packed_section:PackedSection", "coverage_section:CoverageSection", "storage_section:StorageSection"),
}
UNITS = {"layer": "histogram", "map": "part of the map", "pareto": "setting", "words": "token", "packed": "token"}
GRID_NOTE = "grid_note:GridNoteSection"
"""On every page, where the model has such a grid."""


class QuantizationViews(SectionViews[QuantizationState]):
    """All pictures of one run, drawn from one state. Steps are what `QuantizationState.steps` counts."""

    package = "widgets.quantization"
    layout = LAYOUT
    units = UNITS
    always = (GRID_NOTE,)

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, QuantizationState)

    def intro(self) -> Sequence[str]:
        return intro(self.state)

    def lesson_of(self, facts: ModelFacts | None, example: dict[str, Any] | None) -> list[dict[str, Any]]:
        return lesson.sections(self._desk.words, facts, example)

    def built(self, section: Section[QuantizationState]) -> None:
        """The group that is shown is one of the histograms'; those stand above it."""
        if isinstance(section, GroupSection):
            histograms = self.section("HistogramSection")
            if isinstance(histograms, HistogramSection):
                section.follow(histograms)

    def planned(self, steps: int) -> int:
        state = self.state
        match state.task:
            case "pareto":
                return max(steps, state.pareto[-1].total if state.pareto else 0)
            case "words" | "packed":
                return max(steps, int(state.param("max_new_tokens", 1)))
            case "layer":
                layers = state.param("layers", (0,))
                return max(steps, 6 * len(layers if isinstance(layers, list | tuple) else (0,)))
        return steps
