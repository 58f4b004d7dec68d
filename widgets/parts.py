"""What every dashboard is made of, whichever experiment it shows, and where it stands on the page."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw

from lab.experiments.base import Experiment
from lab.strings import Strings
from widgets.comparison.section import CompareSection
from widgets.controls import Controls
from widgets.error_panel import ErrorPanel
from widgets.export import ExportMenu
from widgets.heartbeat import Heartbeat
from widgets.language_links import LanguageLinks
from widgets.lesson import Lesson
from widgets.link import LinkButton
from widgets.page_links import PageLinks
from widgets.player import Player
from widgets.plot import BokehLoader
from widgets.proof_line import ProofLine
from widgets.run_card import RunCardButton
from widgets.runner_bar import RunnerBar
from widgets.text import Words
from widgets.theme_toggle import ThemeToggle


class Parts:
    """The shared widgets of one page. The dashboard gives them their callbacks and their states.

    Args:
        values: the parameters at first, by name.
        words: the page's language.
        starts: whether runs can be started from this page.
    """

    def __init__(
        self,
        experiment: Experiment,
        schema: dict[str, Any],
        values: dict[str, Any],
        model: str,
        words: Strings,
        *,
        starts: bool = True,
    ) -> None:
        # Whole sets of values: the chip of a preset that changes nothing is marked only while nothing is changed.
        defaults = experiment.params().model_dump(mode="json")
        presets = [
            {"question": words(f"{experiment.name}.presets.{p.name}"), "params": {**defaults, **p.params}}
            for p in experiment.presets
        ]
        self._name, self._words = experiment.name, words
        self.controls = Controls(
            schema=schema, values=values, presets=presets, model=model, groups=("main", "sampling"), words=words
        )
        self.further_controls = self.controls.part("compare", "break")
        self.runner = RunnerBar()
        self.heartbeat = Heartbeat(words)
        self.player = Player()
        self.proof = ProofLine()
        self.compare = CompareSection(experiment.name)
        self.card = RunCardButton()
        self.link = LinkButton(follow=True)
        self.export = ExportMenu(prefix=experiment.name)
        self.error = ErrorPanel()
        self.lesson = Lesson(words, starts=starts)

    def layout(self, views: ipw.Widget) -> list[ipw.Widget]:
        """Header, title, and three columns: controls, picture, lesson. `page.css` places them."""
        brand = Words(("p", "Inference Lab"), css_class="lab-brand")
        tools = _box("lab-tools", LanguageLinks(self._words), ThemeToggle(self._words))
        header = _box("lab-header", brand, PageLinks(self._name, self._words), self.heartbeat, tools)
        title = page_title(self._name, self._words)
        controls = _box("lab-controls", self.controls, self.runner, self.further_controls)
        foot = _box("lab-foot", self.proof, self.card, self.link, self.export)
        picture = _box("lab-picture", self.error, _box("lab-player-row", self.player), views, self.compare.widget, foot)
        return [BokehLoader(), header, title, _box("lab-main", controls, picture, _box("lab-side", self.lesson))]


def page_title(experiment: str, words: Strings) -> Words:
    """The experiment's title and the sentence below it, with the way to the lesson where that stands last."""
    lines = ("h1", words(f"{experiment}.title")), ("p", words(f"{experiment}.summary"))
    return Words(*lines, css_class="lab-title", lang=words.language, to_lesson=words("lesson.show"))


def _box(css_class: str, *children: ipw.Widget) -> ipw.Box:
    box = (ipw.Box if css_class in ("lab-header", "lab-main", "lab-foot", "lab-tools") else ipw.VBox)(list(children))
    box.add_class(css_class)
    return box
