"""A section of a page: one picture or a few that belong together, below a line.

How a section is hung in: it is a class below `Section`, in a file of its own, and stands in the list of its task in
the `views.py` of its experiment (`layout`: for each task the sections from top to bottom; see
`widgets.section_views.SectionViews`). Each time the page is drawn, the views

- ask the class `present(state)`: whether the section is on the page at all (a replay is there only if the run told
  one), and build it with the desk when it is so for the first time: a plot takes a tenth of a second to build;
- call `render(state, upto, live=...)` of those that are, with the lock held. `upto` is the player's step, -1 before
  the first; what a step is, `state.steps` says. Nothing is drawn outside `render`: a widget's callback takes
  `desk.lock`, changes a field of the section, and calls `desk.touch()`;
- call `reset()` when another run begins, `settle(state)` when it has ended (ask there what is recorded with the run),
  `tables(state)` for the export, `link()` and `restore()` for what a link keeps: names must differ between sections.

Large tables and all else that only a finished run needs are drawn when `live` is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import ipywidgets as ipw

from widgets.experiment import Desk, Table
from widgets.run_state import TaskState
from widgets.text import Words

S = TypeVar("S", bound=TaskState)


class Section(Generic[S]):
    """One section of the page; see the module's words. `S` is the experiment's state.

    Attributes:
        widget: all of it, made by `section(...)` or `sections(...)`; the constructor sets it.
    """

    widget: ipw.Widget

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @classmethod
    def present(cls, state: S) -> bool:
        """Whether it has something to show or to ask."""
        del state
        return True

    def render(self, state: S, upto: int, *, live: bool) -> None:
        """Write the state up to step `upto` to the widgets; `live` while a run goes."""
        raise NotImplementedError

    def reset(self) -> None:
        """Another run begins."""

    def settle(self, state: S) -> None:
        """The run has ended or was loaded whole: ask what the picture needs beyond its events."""

    def tables(self, state: S) -> Sequence[Table]:
        """The data behind the picture."""
        del state
        return ()

    def link(self) -> dict[str, Any]:
        """Settings of this section for the link: JSON scalars, None for what is as it was at first."""
        return {}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take settings from a link; what does not fit is ignored."""
        del settings


def section(*children: ipw.Widget) -> ipw.VBox:
    """One section of the picture, with a line above it."""
    box = ipw.VBox(list(children))
    box.add_class("lab-section")
    return box


def sections(*children: ipw.Widget) -> ipw.VBox:
    """Several sections that one class draws."""
    box = ipw.VBox(list(children))
    box.add_class("lab-sections")
    return box


def heading(title: str, words: str = "") -> Words:
    """A section's heading."""
    lines = (("h2", title), ("p", words)) if words else (("h2", title),)
    return Words(*lines, css_class="lab-heading")


def choose_children(box: ipw.VBox, children: Sequence[ipw.Widget]) -> None:
    """Put these into a box, if they are not there already."""
    if list(box.children) != list(children):
        box.children = list(children)
