"""Is the output exactly the model's? The identity without any draw, then many draws and a test."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as ipw

from lab.events import RunFailed
from lab.events.speculative import TrialPoint, chi_square_in_words
from widgets.bar_table import Bar, BarRow, BarTable, Column, Series
from widgets.data_table import DataTable
from widgets.figure import FigureRow
from widgets.section import heading, section
from widgets.speculative.figures import identity_figures, trial_figures
from widgets.speculative.sections import SHARE_COLUMNS, share_rows
from widgets.speculative.state import SpeculativeState
from widgets.speculative.tables import pair_table, share_table, trial_table
from widgets.speculative.trial_plot import RED, TrialPlot
from widgets.text import Words
from widgets.token_text import visible
from widgets.verdict import Verdict

OBSERVED: Series = 3
"""Of the pairs that were drawn: neither p, nor q, nor the residual."""
POWER = 0.99
"""With less than this a green trial says little."""


class TrialSection:
    """Two sections: by formula, and by draws."""

    def __init__(self) -> None:
        self._identity = FigureRow(columns=2)
        self._shares = BarTable(
            label="p, q and the residual at the trial's position", first="token", picture="identity"
        )
        self._share_table = DataTable()
        self._verdict = Verdict()
        self._figures = FigureRow()
        self._plot = TrialPlot()
        self._pairs = BarTable(label="Pairs of tokens: expected and observed", first="pair", picture="pairs")
        self._caption = Words(css_class="lab-caption")
        self._trial_table, self._pair_table = (
            DataTable(summary="Table of the trial"),
            DataTable(summary="Table of pairs"),
        )
        by_formula = section(
            heading(
                "First by formula, without any draw",
                "What is accepted and what is put in instead, added up over the vocabulary, must be p itself.",
            ),
            self._identity,
            self._shares,
            self._share_table,
        )
        by_draws = section(
            self._verdict,
            self._figures,
            self._plot,
            self._trial_table,
            heading(
                "The pairs that came out",
                "Two tokens in a row, drawn with the draft, beside what the model says of them.",
            ),
            self._pairs,
            self._caption,
            self._pair_table,
        )
        self.widgets: list[ipw.Widget] = [by_formula, by_draws]

    def render(self, state: SpeculativeState, upto: int, *, live: bool) -> None:
        """Draw the trial up to its point `upto`."""
        self._identity.show(identity_figures(state))
        shares = state.identity.shares if state.identity else ()
        self._shares.show(
            share_rows(shares, {}), SHARE_COLUMNS, empty="" if shares else "The distributions are being computed."
        )
        points = state.trial[: upto + 1]
        tone, text, notes = trial_verdict(state, points[-1] if points else None, live=live)
        self._verdict.show(tone, text, *notes)
        self._figures.show(trial_figures(state, upto))
        planned = points[-1].planned if points else int(state.param("trial_runs", 2000))
        self._plot.show(points, planned)
        self._pairs.show(
            _pairs(points[-1].pairs if points else ()),
            (Column("expected", 1), Column("observed", OBSERVED)),
            empty="No pair drawn yet.",
        )
        self._caption.say(
            ("p", "Expected: DERIVED from p. Observed: MEASURED. The last row stands for all other pairs.")
        )
        if not live:
            self._share_table.show(share_table(tuple(shares), "distributions at the position"))
            self._trial_table.show(trial_table(state), caption="The trial as it went")
            self._pair_table.show(pair_table(state, upto), caption="Pairs, expected and observed")


def _pairs(pairs: Sequence[tuple[str, str, float, int]]) -> list[BarRow]:
    """One row a pair; the last stands for all others and is on another scale, so it has no bars."""
    return [_pair(pair, others=i == len(pairs) - 1 and not pair[0] and not pair[1]) for i, pair in enumerate(pairs)]


def _pair(pair: tuple[str, str, float, int], *, others: bool) -> BarRow:
    first, second, expected, observed = pair
    return BarRow(
        label="all others" if others else f"{visible(first)} {visible(second)}",
        mono=not others,
        bars=() if others else [Bar(expected, 1), Bar(float(observed), OBSERVED)],
        cells=[f"{expected:,.1f}", f"{observed:,}"],
    )


def trial_verdict(state: SpeculativeState, point: TrialPoint | None, *, live: bool) -> tuple[str, str, list[str]]:
    """Tone, heading and notes of the trial; green only with power."""
    broken = state.param("break_run", "nothing") != "nothing"
    if point is None:
        if isinstance(state.end, RunFailed):
            return "none", "The run failed before a pair was drawn.", []
        return "pending", "Is the output exactly the model's?", ["No pair drawn yet."]
    drawn = f"{point.runs:,} of {point.planned:,} pairs"
    if point.p_value < RED:
        why = "The mistake that was switched on is caught." if broken else "Something is wrong with the rule."
        text = f"Not the model's distribution, after {drawn}"
        rare = "By chance alone such pairs come less than once in a million trials."
        if not point.degrees:
            rare = f"{chi_square_in_words(point.statistic, 0)}."
        return "bad", text, [f"{rare[0].upper()}{rare[1:]} {why}"]
    weak = f"Pairs of the draft alone would turn this red with probability {point.power:.2f} only: draw more."
    if point.degrees < 1:
        weak = "All pairs fall into one group: nothing can be told. Draw more, or from more tokens (top-k)."
    if live:
        return "pending", f"No difference from the model's distribution so far, after {drawn}", []
    if point.power < POWER:
        return "even", f"Too few draws to tell, after {drawn}", [weak]
    stopped = point.runs < point.planned
    missed = "A mistake is switched on, and this trial did not catch it." if broken else ""
    early = "The trial was stopped before its end." if stopped else ""
    tone = "none" if stopped else "even" if broken else "good"
    return tone, f"No difference from the model's distribution, after {drawn}", [early, missed]
