"""The centre of the `lora` page: the sections of the task that the run on screen does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.events import ModelFacts
from widgets.experiment import Desk
from widgets.lora import lesson
from widgets.lora.keep_section import KeepSection
from widgets.lora.merged_section import MergedSection
from widgets.lora.sentences import intro
from widgets.lora.state import LoraState
from widgets.section import Section
from widgets.section_views import SectionViews

_WHERE = ("map_section:MapSection", "spectrum_section:SpectrumSection")
_BY_HAND = ("count_section:CountSection", "example_section:ExampleSection")
_WORDS = ("words_section:WordsSection", "scale_section:ScaleSection")
LAYOUT: dict[str, tuple[str, ...]] = {
    "compare": (
        *_WORDS,
        "adapter_section:AdapterSection",
        "other_section:OtherSection",
        "merged_section:MergedSection",
        *_WHERE,
        *_BY_HAND,
    ),
    "train": (
        "data_section:DataSection",
        "training_section:TrainingSection",
        *_WORDS,
        "adapter_section:AdapterSection",
        "keep_section:KeepSection",
        "merged_section:MergedSection",
        *_WHERE,
        *_BY_HAND,
    ),
    "swap": ("swap_section:SwapSection", "adapter_section:AdapterSection", *_WHERE, *_BY_HAND),
    "merge": ("merge_section:MergeSection", "adapter_section:AdapterSection", *_WHERE, *_BY_HAND),
}
UNITS = {"compare": "token", "train": "step", "swap": "row", "merge": "base"}


class LoraViews(SectionViews[LoraState]):
    """All pictures of one run, drawn from one state. Steps are what `LoraState.steps` counts."""

    package = "widgets.lora"
    layout = LAYOUT
    units = UNITS

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, LoraState)

    def built(self, section: Section[LoraState]) -> None:
        """The merged model of a training is made of the adapter that was kept."""
        if isinstance(section, MergedSection):
            section.kept = self._kept

    def _kept(self) -> str:
        try:
            keeping = self.section("KeepSection")
        except KeyError:
            return ""
        return keeping.kept if isinstance(keeping, KeepSection) else ""

    def intro(self) -> Sequence[str]:
        return intro(self.state)

    def lesson_of(self, facts: ModelFacts | None, example: dict[str, Any] | None) -> list[dict[str, Any]]:
        del facts
        return lesson.sections(self._desk.words, example)

    def planned(self, steps: int) -> int:
        state = self.state
        match state.task:
            case "compare":
                return max(steps, int(state.param("max_new_tokens", 1)))
            case "train":
                return max(steps, int(state.param("steps", 1)) + 1)
            case "swap":
                return max(steps, state.swaps[-1].total if state.swaps else 0)
        return steps
