"""The page of a recording without a backend: the same state, views and words as on the live page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets as ipw

from lab.events import Event, Recording, is_final
from lab.experiments.registry import get_experiment
from lab.strings import Strings
from widgets.experiment import Cursor, Desk, build_views
from widgets.page_drawing import PageDrawing
from widgets.page_state import PageState
from widgets.parts import Parts, page_title
from widgets.session import Session
from widgets.text import Words
from widgets.theme_toggle import ThemeToggle
from widgets.view import View

NEVER_ASKED = "This was never asked while the run was recorded."
MOST_DRAWS = 20
"""An answer may lead to another question, but not for ever."""
PICTURES = ("png", "svg")
"""Exports that the page itself makes."""
FILES = ("csv", "json", "recording")
"""Exports that stand in the file."""
Snapshot = dict[int, dict[str, Any]]


class StillPage:
    """What a page shows after a run's events. Questions are answered from the recording or refused, at once.

    Attributes:
        widget: all of the page.
        known: the widgets that were on the page at any time; a widget's place in it is its number.

    Raises:
        NotFound: the recording's experiment has no page.
    """

    def __init__(self, recording: Recording, words: Strings) -> None:
        card = recording.started.card
        self.words = words
        self.experiment = get_experiment(card.experiment)
        self.cursor = Cursor()
        self._touched = False
        lock = threading.RLock()
        self.session = Session(lock, self._fold, self._touch)
        self._state = PageState(
            self.experiment.info().schema, self.experiment.params().model_dump(mode="json"), replay=True
        )
        self._state.change(card.params)
        self.views = build_views(card.experiment, Desk(self._ask, self._touch, lock, self.cursor, words=words))
        self.parts = Parts(self.experiment, self._state.schema, self._state.params, card.model, words, starts=False)
        self._drawing = PageDrawing(self._state, self.session, self.cursor, self.parts, self.views)
        self.parts.player.on_step(self._step)
        self.widget = self._layout()
        self.known: list[ipw.DOMWidget] = []
        self._numbers: dict[str, int] = {}
        self.session.show(recording)
        self.views.settle()
        self.draw()

    def _layout(self) -> ipw.Box:
        """The page's own places, without what needs a kernel: controls, link, other pages."""
        parts = self.parts
        self._about = Words(css_class="lab-heading", lang=self.words.language)
        brand = Words(("p", "Inference Lab"), css_class="lab-brand")
        title = page_title(self.experiment.name, self.words)
        foot = _box("lab-foot", parts.proof, parts.card, parts.export)
        picture = _box("lab-picture", parts.error, _box("lab-player-row", parts.player), self.views.widget, foot)
        main = _box("lab-main", _box("lab-controls", self._about), picture, _box("lab-side", parts.lesson))
        return _box("lab-page", _box("lab-header", brand, parts.heartbeat, ThemeToggle(self.words)), title, main)

    def _fold(self, event: Event | None) -> None:
        if event is None:
            self.views.reset()
        else:
            self.views.fold(event)
            if is_final(event):
                self.views.settle()

    def _touch(self) -> None:
        self._touched = True

    def _ask(self, name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        del of_run
        found = next((i.answer for i in self.session.inspections if i.name == name and i.params == params), None)
        reply(found, "" if found is not None else NEVER_ASKED)

    def _step(self, step: int) -> None:
        self.cursor.step = step if step < self.views.steps() - 1 else None  # at its end it is as at first
        self._touch()

    def draw(self) -> None:
        """Write what is true now to the widgets, until no answer changes it."""
        for _ in range(MOST_DRAWS):
            self._touched = False
            self._drawing.draw()
            if not self._touched:
                break
        self._say_what_it_is()

    def _say_what_it_is(self) -> None:
        """A file is a recorded run, whenever it was made, and offers what stands in it."""
        parts, started = self.parts, self.session.started
        if started is None:
            return
        card, defaults = started.card, self.experiment.params().model_dump(mode="json")
        changed = [f"{name}: {value}" for name, value in card.params.items() if defaults.get(name) != value]
        self._about.say(
            ("h2", self.words("saved.title")),
            ("p", self.words("saved.model", model=started.facts.name, dtype=card.dtype, device=card.device)),
            ("p", "; ".join(changed) or self.words("saved.defaults")),
            ("p", self.words("saved.alone")),
        )
        parts.heartbeat.show(mode="recorded", when=started.recorded or "", model=parts.heartbeat.state["model"])
        parts.export.show([item for item in parts.export.state["items"] if item["id"] in (*PICTURES, *FILES)])

    def view(self, number: int) -> View:
        """The view of this number.

        Raises:
            TypeError: it is a box.
        """
        found = self.known[number]
        if not isinstance(found, View):
            raise TypeError(f"widget {number} is no view")
        return found

    def send(self, view: View, message: dict[str, Any]) -> None:
        """Let a view hear what a visitor does, and draw."""
        view._receive(view, message, [])
        self.draw()

    def snapshot(self) -> Snapshot:
        """What the page shows, by the widgets' numbers: children of boxes; module, state and traits of views."""
        return {self._number(widget): self.shown(widget) for widget in _walk(self.widget)}

    def shown(self, widget: ipw.DOMWidget) -> dict[str, Any]:
        """What one widget shows."""
        own = {"classes": list(widget._dom_classes), "display": widget.layout.display or ""}
        if isinstance(widget, View):
            traits = {name: getattr(widget, name) for name in ("item", "bits", "tree") if widget.has_trait(name)}
            return {**own, "module": widget.module, "state": widget.state, "traits": traits}
        return {**own, "children": [self._number(child) for child in widget.children]}

    def _number(self, widget: ipw.DOMWidget) -> int:
        number = self._numbers.get(widget.model_id)
        if number is None:
            number = self._numbers[widget.model_id] = len(self.known)
            self.known.append(widget)
        return number


def _box(css_class: str, *children: ipw.Widget) -> ipw.Box:
    box = ipw.Box(list(children))
    box.add_class(css_class)
    return box


def _walk(widget: ipw.DOMWidget) -> Iterator[ipw.DOMWidget]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _walk(child)
