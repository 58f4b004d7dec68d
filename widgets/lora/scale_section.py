"""How much of the update? One row's tokens, read again by the base with 0 to 2 times the update, as a slider moves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from widgets.asked import Answer, Asked
from widgets.asker import RUN_AGAIN
from widgets.bar_table import BarTable, Column
from widgets.choice import Choice, Slider, float_slider
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.lora.scale_words import (
    NOW,
    RUN,
    Reading,
    quality_rows,
    read,
    scale_figures,
    scale_table,
    token_rows,
)
from widgets.lora.state import ADAPTER, BASE, MERGED, LoraState
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words

STEP = 0.05
WARM = (1.0, 0.0, 2.0, 0.5, 1.5, 0.25, 0.75, 1.25, 1.75)
"""Asked one after another once the run has ended: the slider answers at once there, and so does a recording."""
ROWS = {ADAPTER: ("adapter", "the adapter's words"), BASE: ("dense", "the base's words"), MERGED: ("merged", "merged")}


class ScaleSection(Section[LoraState]):
    """The slider, figures, a bar for each token of the row.

    Attributes:
        factor: of the update; None follows the run's own.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.factor: float | None = None
        self._warmed: set[tuple[str, float]] = set()
        self._known: dict[tuple[str, float], Reading] = {}
        self._asked = Asked(desk, "scale", read, of_run=True)
        self._rows = Choice(desk, "Read again")
        self._field = float_slider("Scale to read at", 0.0, 2.0, STEP, 1.0)
        self._slider = Slider(desk, "factor", self._field, self._moved)
        self._words = Words(css_class="lab-caption")
        self._figures = FigureRow()
        self._bars = BarTable(label="Probability of each token of the row", first="token", picture="scale")
        self._over = BarTable(label="The row at each scale", first="scale", picture="over the scale")
        self._about = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all tokens")
        self.widget = section(
            heading(
                "How much of it?",
                "The update is only added, so it can be added in part: W + f · s B A. 0 is the base, 1 as trained.",
            ),
            self._rows.widget,
            self._slider.widget,
            self._words,
            self._figures,
            self._bars,
            self._over,
            self._about,
            self._table,
        )

    @classmethod
    def present(cls, state: LoraState) -> bool:
        return bool(state.words.get(ADAPTER))

    def _moved(self, value: float) -> None:
        self.factor = value

    def reset(self) -> None:
        self._asked.clear()
        self._asked.last = None
        self._warmed.clear()
        self._known.clear()
        self.factor = None

    def settle(self, state: LoraState) -> None:
        """Ask for the row as the run read it, so that a recording has it."""
        if self.present(state):
            self._asked.ask(_question(self._row(state), state.factor))

    def _row(self, state: LoraState) -> str:
        there = [row for row in ROWS if state.words.get(row) and row != MERGED]
        self._rows.index = min(self._rows.index, max(0, len(there) - 1))
        return ROWS[there[self._rows.index]][0] if there else "dense"

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto
        there = [row for row in ROWS if state.words.get(row) and row != MERGED]
        shown = there[self._rows.show([ROWS[row][1] for row in there])] if there else ADAPTER
        row = ROWS[shown][0]
        factor = round(state.factor if self.factor is None else self.factor, 4)
        self._slider.show(self._field, factor)
        question = _question(row, factor)
        found = None
        if state.end is not None:  # a living run has the model's next slice
            found = self._asked.ask(question)
            self._keep(row, factor, found)
        why = self._asked.why_not(question)
        if found is not None or why:
            self._warm(row)
        said = found or (self._nearest(row, factor) if why else self._last(row))
        self._show(state, shown, row, factor, said)
        self._words.say(("p", self._status(state, said, factor, why)))
        if not live:
            self._table.show(scale_table(said))

    def _show(self, state: LoraState, shown: str, row: str, factor: float, said: Reading | None) -> None:
        show_if(said, self._figures, self._bars, self._about, self._table)
        at = {f: r for (name, f), r in self._known.items() if name == row}
        show_if(len(at) > 1, self._over)
        if said is None:
            return
        own = {t.index: t.p for t in state.words.get(shown, [])}
        reference = 0.0 if shown == BASE else state.factor
        self._figures.show(scale_figures(said))
        columns = (Column("p now", NOW), Column(f"p at {reference:g}"), Column("top now"))
        self._bars.show(token_rows(said, own, f"at {reference:g}"), columns, most=1.0)
        self._over.show(quality_rows(at, factor), (Column("p, mean", RUN), Column("its own first choice")), most=1.0)
        rest = f" {said.left_out:,} later tokens of the row are not read." if said.left_out else ""
        self._about.say(
            (
                "p",
                f"MEASURED: the row's text stands before each place, at every scale. Bar: the token's probability at "
                f"{said.factor:g}; ring: at {reference:g}, as the run had it.{rest}",
            )
        )

    def _keep(self, row: str, factor: float, found: Reading | None) -> None:
        if found is not None:
            self._known[row, factor] = found

    def _warm(self, row: str) -> None:
        """Ask for one more of the usual scales; its answer leads to the next."""
        for factor in WARM:
            question = _question(row, factor)
            known = self._asked.known(question)
            if known is not None:
                self._keep(row, factor, known)
                continue
            if (row, factor) not in self._warmed:
                self._warmed.add((row, factor))
                self._desk.ask("scale", question, partial(self._answered, row, factor), of_run=True)
                return

    def _answered(self, row: str, factor: float, answer: Answer | None, why: str) -> None:
        del why
        with self._desk.lock:
            if answer is not None:
                try:
                    self._known[row, factor] = read(answer)
                except (KeyError, TypeError, ValueError, IndexError):
                    return
        self._desk.touch()

    def _nearest(self, row: str, factor: float) -> Reading | None:
        there = {f: r for (name, f), r in self._known.items() if name == row}
        return there[min(there, key=lambda f: abs(f - factor))] if there else None

    def _last(self, row: str) -> Reading | None:
        last = self._asked.last
        return last if last is not None and last.row == row else None

    def _status(self, state: LoraState, said: Reading | None, factor: float, why: str) -> str:
        if state.end is None:
            return "Follows when the run has ended."
        if why:
            near = f" The nearest that was recorded, {said.factor:g}, is shown." if said else ""
            if why.endswith(RUN_AGAIN):
                return f"Press Run to read at other scales: the recorded run was not read at {factor:g}.{near}"
            return f"At {factor:g}: {why}{near}"
        if said is None or said.factor != factor:
            return f"The row is being read at {factor:g}."
        return ""

    def tables(self, state: LoraState) -> Sequence[Table]:
        del state
        return (scale_table(self._asked.last),) if self._asked.last else ()

    def link(self) -> dict[str, Any]:
        return {"scale": self.factor}

    def restore(self, settings: dict[str, Any]) -> None:
        wanted = settings.get("scale")
        if isinstance(wanted, int | float) and not isinstance(wanted, bool) and 0 <= wanted <= 2:
            self.factor = float(wanted)


def _question(row: str, factor: float) -> dict[str, Any]:
    return {"factor": round(factor, 4), "row": row}
