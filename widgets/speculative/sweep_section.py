"""How many tokens to propose: speed-up over γ."""

from __future__ import annotations

from widgets.data_table import DataTable
from widgets.section import section
from widgets.speculative.figures import EVEN, spoken, tone
from widgets.speculative.state import SpeculativeState
from widgets.speculative.sweep_plot import SweepPlot, best_of
from widgets.speculative.tables import sweep_table
from widgets.text import Words
from widgets.verdict import Verdict


class SweepSection:
    """The verdict, the two curves and their table."""

    def __init__(self) -> None:
        self._verdict = Verdict()
        self._plot = SweepPlot()
        self._legend = Words(css_class="lab-caption")
        self._legend.legend(
            [("measured", "--lab-series-2", False), ("from α, c and v of the same run", "--lab-text", True)]
        )
        self._table = DataTable()
        self.widget = section(self._verdict, self._plot, self._legend, self._table)

    def render(self, state: SpeculativeState, upto: int, *, live: bool) -> None:
        """Draw the points up to `upto`."""
        points = state.sweep[: upto + 1]
        best = best_of(points)
        speed = best.figures.measured if best else None
        so_far = " so far" if live else ""
        notes: list[str] = []
        if best is None or speed is None:
            text = "No γ measured yet." if live or not state.end else "The run ended before any γ was measured."
        elif speed > 1 + EVEN:
            text = f"Best{so_far}: γ = {best.gamma}, {speed:.2f} times plain decoding"
        else:
            text = f"No γ pays{so_far}: the best, γ = {best.gamma}, reaches {speed:.2f} times plain decoding"
            notes = spoken(best.figures.verdict)
        self._verdict.show("pending" if live or best is None else tone(speed), text, *notes)
        self._plot.show(points, 1 if state.end else 8)
        tokens = max((p.figures.new_tokens for p in points), default=0)
        each = f" {tokens:,} tokens for each γ: differences of a few per cent are noise." if tokens else ""
        words = (
            f"MEASURED against a plain run in the same process.{each} The dashed line is DERIVED: expected tokens a "
            "pass / (γ c + v), with α, c and v from the same run. It shows whether the cost model holds; it is no "
            "forecast."
        )
        self._legend.say(("p", words))
        if not live:
            self._table.show(sweep_table(state), caption="Speed-up for each γ")
