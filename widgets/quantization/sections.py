"""What all sections of the `quantization` page share.

How a section is hung in: it is a class below `Section`, in a file of its own, and stands in the list of its task in
`widgets/quantization/views.py` (`LAYOUT`: for each task the sections from top to bottom). Each time the page is drawn,
`views.py`

- asks the class `present(state)`: whether the section is on the page at all (a GPTQ replay is there only if the run
  told one), and builds it with the desk when it is so for the first time: a plot takes a tenth of a second to build;
- calls `render(state, upto, live=...)` of those that are, with the lock held. `upto` is the player's step, -1 before
  the first: a histogram (`state.histograms`), a part of the map (`state.map_steps`), a setting (`state.pareto`), or the
  index of a new token (words, packed). Nothing is drawn outside `render`: a widget's callback takes `desk.lock`,
  changes a field of the section, and calls `desk.touch()`;
- calls `reset()` when another run begins, `settle(state)` when it has ended (ask there what is recorded with the run),
  `tables(state)` for the export, `link()` and `restore()` for what a link keeps: names must differ between sections.

Large tables and all else that only a finished run needs are drawn when `live` is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as ipw

from widgets.bar_table import Series
from widgets.experiment import Desk, Table
from widgets.quantization.state import QuantizationState
from widgets.text import Words

WEIGHT: Series = 1
OUTPUT: Series = 2
MODEL: Series = 3
"""Series of the three errors: of weights, of a layer's outputs, of the whole model. The same colours everywhere."""
CHOSEN = "--lab-series-1"
BESIDE = "--lab-series-4"
"""Colours of the run's own setting, and of those that stand beside it to compare."""


class Section:
    """One section of the page; see the module's words.

    Attributes:
        widget: all of it, made by `section(...)`; the constructor sets it.
    """

    widget: ipw.Widget

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        """Whether it has something to show or to ask."""
        del state
        return True

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Write the state up to step `upto` to the widgets; `live` while a run goes."""
        raise NotImplementedError

    def reset(self) -> None:
        """Another run begins."""

    def settle(self, state: QuantizationState) -> None:
        """The run has ended or was loaded whole: ask what the picture needs beyond its events."""

    def tables(self, state: QuantizationState) -> Sequence[Table]:
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


def heading(title: str, words: str = "") -> Words:
    """A section's heading."""
    lines = (("h2", title), ("p", words)) if words else (("h2", title),)
    return Words(*lines, css_class="lab-heading")
