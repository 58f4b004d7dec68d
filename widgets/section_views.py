"""The base of a page made of sections: each task of the experiment has its own, from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import ipywidgets as ipw

from lab.events import ModelFacts
from widgets.experiment import Desk, Table
from widgets.run_state import TaskState
from widgets.run_views import RunViews
from widgets.section import Section

S = TypeVar("S", bound=TaskState)


class SectionViews(RunViews[S]):
    """The centre of a page: an intro and the sections of the task that the run on screen does.

    A page below it sets the four names and says `intro`, `lesson` and `planned`.

    Attributes:
        package: of the page, such as "widgets.quantization".
        layout: for each task the sections from top to bottom, "module:Class" in the page's package or, with
            "widgets." before it, anywhere. A class is loaded when a run first needs it.
        always: sections above those of every task.
        units: for each task the name of a step.
    """

    package: ClassVar[str]
    layout: ClassVar[Mapping[str, Sequence[str]]]
    units: ClassVar[Mapping[str, str]]
    always: ClassVar[Sequence[str]] = ()
    asks_of_run = True
    """Questions are about the model of the run on screen, not the one chosen for the next run."""

    def __init__(self, desk: Desk, make: type[S]) -> None:
        super().__init__(desk, make)
        self.step_unit = self.units[self.state.task]
        self._sections: dict[str, Section[S]] = {}
        self._settings: dict[str, Any] = {}
        self.widget = ipw.VBox([self._intro])

    def intro(self) -> Sequence[str]:
        """The paragraphs above the sections."""
        raise NotImplementedError

    def lesson_of(self, facts: ModelFacts | None, example: dict[str, Any] | None) -> list[dict[str, Any]]:
        """The lesson's sections for the model on screen; `example` is the worked one, once it is there."""
        raise NotImplementedError

    def built(self, section: Section[S]) -> None:
        """A section was built: tie it to another one here, where a page needs that."""

    def section(self, name: str) -> Section[S]:
        """A section that was built, by its class name.

        Raises:
            KeyError: it was not.
        """
        return next((s for n, s in self._sections.items() if n.endswith(f":{name}")), None) or self._sections[name]

    def _shown(self) -> list[Section[S]]:
        """The sections of the task on screen, from top to bottom; those not yet there are built."""
        shown = []
        for name in (*self.always, *self.layout[self.state.task]):
            cls = _class(name if name.startswith("widgets.") else f"{self.package}.{name}")
            if cls.present(self.state):
                if name not in self._sections:
                    self._sections[name] = cls(self._desk)
                    self._sections[name].restore(self._settings)
                    self.built(self._sections[name])
                shown.append(self._sections[name])
        return shown

    def reset(self) -> None:
        """Forget the run."""
        super().reset()
        for section in self._sections.values():
            section.reset()

    def settle(self) -> None:
        """Ask for what is recorded with the run."""
        super().settle()
        with self._desk.lock:
            for section in self._shown():
                section.settle(self.state)

    def render(self, *, live: bool) -> None:
        """Write the state to the widgets."""
        self.step_unit = self.units[self.state.task]
        self._intro.say(*(("p", text) for text in self.intro()))
        upto = self.upto()
        shown = self._shown()
        for section in shown:
            section.render(self.state, upto, live=live)
        children = [self._intro, *(section.widget for section in shown)]
        if list(self.widget.children) != children:
            self.widget.children = children

    def lesson(self, facts: ModelFacts | None) -> list[dict[str, Any]]:
        """The lesson's sections for the model on screen."""
        return self.lesson_of(facts, self._example)

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
def _class(name: str) -> Any:
    """A section's class by "module:Class"; its module is loaded now."""
    module, _, cls = name.partition(":")
    return getattr(import_module(module), cls)
