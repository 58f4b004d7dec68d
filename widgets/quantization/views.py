"""The centre of the `quantization` page: the sections of the task that the run on screen does."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import ipywidgets as ipw

from lab.events import Event, ModelFacts
from widgets.experiment import Desk, Table
from widgets.quantization import lesson
from widgets.quantization.group_section import GroupSection
from widgets.quantization.histogram_section import HistogramSection
from widgets.quantization.sections import Section
from widgets.quantization.sentences import intro
from widgets.quantization.state import QuantizationState
from widgets.text import Words

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
HISTOGRAMS = "histogram_section:HistogramSection"


class QuantizationViews:
    """All pictures of one run, drawn from one state. Steps are what `QuantizationState.steps` counts."""

    step_unit = "histogram"
    asks_of_run = True
    """Questions are about the model of the run on screen, not the one chosen for the next run."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.state = QuantizationState()
        self._example: dict[str, Any] | None = None
        self._intro = Words(css_class="lab-intro")
        self._sections: dict[str, Section] = {}
        self._settings: dict[str, Any] = {}
        self.widget = ipw.VBox([self._intro])

    def section(self, name: str) -> Section:
        """A section that was built, by its class name.

        Raises:
            KeyError: it was not.
        """
        return next((s for n, s in self._sections.items() if n.endswith(f":{name}")), None) or self._sections[name]

    def _shown(self) -> list[Section]:
        """The sections of the task on screen, from top to bottom; those not yet there are built."""
        shown = []
        for name in (GRID_NOTE, *LAYOUT[self.state.task]):
            cls = _class(name)
            if cls.present(self.state):
                if name not in self._sections:
                    self._sections[name] = cls(self._desk)
                    self._sections[name].restore(self._settings)
                    self._hang(self._sections[name])
                shown.append(self._sections[name])
        return shown

    def _hang(self, section: Section) -> None:
        """The group that is shown is one of the histograms'."""
        histograms = self._sections.get(HISTOGRAMS)
        if isinstance(section, GroupSection) and isinstance(histograms, HistogramSection):
            section.follow(histograms)

    def reset(self) -> None:
        """Forget the run."""
        self.state = QuantizationState()
        for section in self._sections.values():
            section.reset()

    def fold(self, event: Event) -> None:
        """Take one event in."""
        self.state.fold(event)

    def settle(self) -> None:
        """Ask for what is recorded with the run."""
        self._desk.ask("worked_example", {}, self._take_example, of_run=False)
        with self._desk.lock:
            for section in self._shown():
                section.settle(self.state)

    def _take_example(self, answer: dict[str, Any] | None, why: str) -> None:
        del why
        if answer is not None:
            with self._desk.lock:
                self._example = answer
            self._desk.touch()

    def steps(self) -> int:
        """What the player can show so far."""
        return self.state.steps

    def planned_steps(self) -> int:
        """How many steps a living run will have, as far as can be told now."""
        state, steps = self.state, self.state.steps
        if state.end is not None:
            return steps
        match state.task:
            case "pareto":
                return max(steps, state.pareto[-1].total if state.pareto else 0)
            case "words" | "packed":
                return max(steps, int(state.param("max_new_tokens", 1)))
            case "layer":
                layers = state.param("layers", (0,))
                return max(steps, 6 * len(layers if isinstance(layers, list | tuple) else (0,)))
        return steps

    def note(self) -> str:
        """The run's own progress says where it is."""
        return ""

    def render(self, *, live: bool) -> None:
        """Write the state to the widgets."""
        state = self.state
        self.step_unit = UNITS[state.task]
        self._intro.say(*(("p", text) for text in intro(state)))
        last = state.steps - 1
        upto = last if self._desk.cursor.step is None else min(self._desk.cursor.step, last)
        shown = self._shown()
        for section in shown:
            section.render(state, upto, live=live)
        children = [self._intro, *(section.widget for section in shown)]
        if list(self.widget.children) != children:
            self.widget.children = children

    def lesson(self, facts: ModelFacts | None) -> list[dict[str, Any]]:
        """The lesson's sections for the model on screen."""
        return lesson.sections(facts, self._example)

    def tables(self) -> list[Table]:
        """The data behind the pictures of the task on screen."""
        return [table for section in self._shown() for table in section.tables(self.state) if table.rows]

    def link(self) -> dict[str, Any]:
        """What the sections keep in the link."""
        return {name: value for section in self._sections.values() for name, value in section.link().items()}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take view settings from a link; what does not fit is ignored."""
        self._settings = dict(settings)
        for section in self._sections.values():
            section.restore(settings)


@cache
def _class(name: str) -> type[Section]:
    """A section's class; its module is loaded when a run first needs it."""
    module, _, cls = name.partition(":")
    found: type[Section] = getattr(import_module(f"widgets.quantization.{module}"), cls)
    return found
