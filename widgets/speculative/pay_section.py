"""Does it pay? The verdict, the figures behind it, acceptance by place, and the race with plain decoding."""

from __future__ import annotations

import ipywidgets as ipw

from widgets.data_table import DataTable
from widgets.figure import FigureRow
from widgets.speculative.depth_plot import CROWDED, DepthPlot
from widgets.speculative.figures import details, verdict
from widgets.speculative.race_plot import RacePlot
from widgets.speculative.sections import heading, section
from widgets.speculative.state import SpeculativeState
from widgets.speculative.tables import figure_table, plain_table
from widgets.text import Words
from widgets.verdict import Verdict


class PaySection:
    """What a run came to; its parts say what each figure means."""

    def __init__(self) -> None:
        self._verdict = Verdict()
        self._figures = FigureRow()
        self._race, self._depth = RacePlot(), DepthPlot()
        self._depth_words = Words(css_class="lab-heading")
        self._race_words = Words(css_class="lab-caption")
        self._table, self._plain = DataTable(summary="All figures"), DataTable(summary="The plain run")
        self.widgets: list[ipw.Widget] = [
            section(self._verdict, self._race, self._race_words, self._plain),
            section(
                heading(
                    "The figures behind it", "What the draft shares with the model, what it costs, what would pay."
                ),
                self._figures,
                self._table,
            ),
            section(self._depth_words, self._depth),
        ]

    def render(self, state: SpeculativeState, upto: int, pointed: int | None, *, live: bool) -> None:
        """Draw the run up to round `upto`; `pointed` is a round pointed at."""
        tone, text, notes = verdict(state, live=live)
        self._verdict.show(tone, text, *notes)
        self._race.show(state, upto, pointed)
        if state.plain:
            words = "MEASURED: the plain run is really made in the same process, with the same rules and dtype."
        else:
            words = "No plain run was made." if state.end else "The plain run has not begun."
        self._race_words.say(("p", words))
        places = max((r.gamma for r in state.rounds), default=1)
        self._depth.show(state.counts(upto).by_depth, places)
        above = "accepted of judged" if places <= CROWDED else "how many were accepted"
        self._depth_words.say(
            ("h2", "Where the guesses go wrong"),
            ("p", f"A guess is judged only if all before it in its round were accepted. Above each bar: {above}."),
        )
        self._figures.show(details(state, upto))
        if not live:
            self._table.show(figure_table(state))
            self._plain.show(plain_table(state), caption="The plain run, token by token")
