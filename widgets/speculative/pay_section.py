"""Does it pay? The verdict, the figures behind it, acceptance by place, and the race with plain decoding."""

from __future__ import annotations

import ipywidgets as ipw

from widgets.data_table import DataTable
from widgets.figure import FigureRow
from widgets.format import format_ms
from widgets.section import heading, section
from widgets.speculative.depth_plot import CROWDED, DepthPlot
from widgets.speculative.figures import EVEN, details, verdict
from widgets.speculative.race_plot import PLAIN, SPECULATIVE, Race, RacePlot, race_of
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
        self._race_words.legend([("plain: the model alone", PLAIN, False), ("with the draft", SPECULATIVE, False)])
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
        race = race_of(state, upto)
        planned = int(state.param("max_new_tokens", 1)) - 1 if state.end is None else 1
        self._race.show(race, planned, upto if pointed is None else min(pointed, upto))
        self._race_words.say(("p", _race_words(state, race, whole=upto >= len(state.rounds) - 1)))
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


def _race_words(state: SpeculativeState, race: Race, *, whole: bool) -> str:
    """What the lines are, what they come to, and why that may differ from the verdict."""
    if not state.plain:
        return "No plain run was made." if state.end else "The plain run has not begun."
    words = "MEASURED: the plain run is really made in the same process, with the same rules and dtype."
    if race.at is None or race.speed is None:
        return words
    tokens, ms, plain = race.at
    words += (
        f" The lines are sums, slow steps and all: {tokens:,} tokens took {format_ms(plain)} plain and {format_ms(ms)} "
        f"with the draft, {race.speed:.2f} times as fast."
    )
    told = state.figures.measured if state.figures and whole else None
    if told is not None and abs(told - race.speed) > EVEN / 4:
        words += (
            f" The verdict's {told:.2f} takes the median plain step, and the median check of as many tokens, so that "
            "a few slow steps do not decide."
        )
    return words
