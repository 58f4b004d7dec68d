"""Where the levels of a code lie, against the distribution of the weights."""

from __future__ import annotations

import ipywidgets as ipw

from lab.events.quantization_methods import LevelsShown
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.numbers import capital, percent
from widgets.quantization.levels_plot import LevelsPlot
from widgets.quantization.sentences import shares_of
from widgets.quantization.state import Matrix, QuantizationState
from widgets.quantization.tables import levels_table
from widgets.section import Section, heading, section
from widgets.text import Words

MOST = 3
"""Sets of levels that are drawn, one below the other."""


class LevelsSection(Section[QuantizationState]):
    """One plot for each set of levels; NF4 stands beside evenly spaced ones where the run told both."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._titles: list[Words] = []
        self._plots: list[LevelsPlot] = []
        self._box = ipw.VBox([])
        self._table = DataTable(summary="Table of the levels")
        self.widget = section(
            heading(
                "Where the levels lie",
                "Each weight divided by the largest of its group (grey), and the levels it can become (pins). A pin is "
                "as tall as the share of weights that end there.",
            ),
            self._box,
            self._table,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        """Whether the run told any levels."""
        return bool(state.levels)

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw the newest sets of levels."""
        del upto
        shown = state.levels[-MOST:]
        while len(self._plots) < len(shown):
            self._titles.append(Words(css_class="lab-caption"))
            self._plots.append(LevelsPlot())
        for words, plot, levels in zip(self._titles, self._plots, shown, strict=False):
            plot.show(levels)
            words.say(("p", levels_words(levels)))
        pairs = zip(self._titles[: len(shown)], self._plots, strict=False)
        children = tuple(part for pair in pairs for part in pair)
        if self._box.children != children:
            self._box.children = children
        if not live:
            self._table.show(levels_table(state))

    def tables(self, state: QuantizationState) -> list[Table]:
        """Every level and the weights it takes."""
        return [levels_table(state)]


def levels_words(levels: LevelsShown) -> str:
    """What is seen, and how evenly the levels are used."""
    where = Matrix(levels.layer, levels.projection).title
    used = levels.used
    if not any(used):
        return f"{levels.label}, {where}: no weights."
    gaps = [b - a for a, b in zip(levels.levels, levels.levels[1:], strict=False)]
    even = bool(gaps) and max(gaps) - min(gaps) < 1e-3 * max(gaps)
    spacing = "evenly spaced" if even else "closer together where weights are many"
    beside = ""
    if levels.even:
        busiest = percent(max(shares_of(levels.even)))
        beside = f" Of as many evenly spaced levels (orange rings) the busiest would take {busiest}."
    empty = sum(u == 0 for u in used)
    none = f", {empty} of them take none" if empty else ""
    said = (
        f"{capital(levels.label)}, {where}: {len(used)} levels, {spacing}{none}. The busiest takes "
        f"{percent(max(shares_of(used)))} of the weights; evenly shared it would be {percent(1 / len(used))}.{beside}"
    )
    return said.replace(" %", "\u00a0%")
