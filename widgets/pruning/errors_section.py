"""What the layer's outputs lose by each method, beside magnitude."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.events.pruning import PruneErrors
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line
from widgets.choice import Choice
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.format import format_ms
from widgets.numbers import number, percent
from widgets.pruning.method_marks import mark_of, tight
from widgets.pruning.state import Matrix, PruningState
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.verdict import Verdict


class ErrorsSection(Section[PruningState]):
    """One matrix: a bar a method, magnitude at the dashed line; all of them in the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._choice = Choice(desk, "Matrix")
        self._verdict = Verdict()
        self._bars = BarTable(label="Output error of each method", first="method", picture="output errors")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all errors")
        self.widget = section(
            heading(
                "What does the layer’s output lose?",
                "The same inputs go through the dense and the pruned matrix: |X(W′ − W)ᵀ| / |XWᵀ|.",
            ),
            self._choice.widget,
            self._verdict,
            self._bars,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: PruningState) -> bool:
        return bool(state.errors)

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        del upto
        found = list(dict.fromkeys(Matrix(e.layer, e.projection) for e in state.errors))
        if not found:
            return
        matrix = found[self._choice.show([m.title for m in found])]
        own = [e for e in state.errors if (e.layer, e.projection) == matrix]
        self._verdict.show(*errors_verdict(own, live=live and state.end is None))
        base = next((e for e in own if e.setting.method == "magnitude"), None)
        line = Line(base.calibration_error, "magnitude") if base and math.isfinite(base.calibration_error) else None
        heads = (Column("calibration"), Column("held-out"), Column("× magnitude"))
        self._bars.show(error_rows(own), heads, line=line)
        self._caption.say(
            (
                "p",
                f"MEASURED on {matrix.title}. Bar: on calibration text, circle: on held-out text. "
                f"{weight_words(own)}".strip(),
            )
        )
        if not live:
            self._table.show(error_table(state.errors))

    def tables(self, state: PruningState) -> Sequence[Table]:
        return (error_table(state.errors),)


def error_rows(errors: Sequence[PruneErrors]) -> list[BarRow]:
    """A row a method, the least error first; those without a figure last."""
    rows = []
    for e in sorted(errors, key=lambda e: (not math.isfinite(e.calibration_error), e.calibration_error)):
        cells = [percent(e.calibration_error), percent(e.heldout_error)]
        cells += [f"{number(e.to_magnitude, 2)} ×" if e.to_magnitude is not None else "1"]
        if not math.isfinite(e.calibration_error):
            rows.append(BarRow(tight(e.setting.label), note="not measured", cells=cells))
            continue
        dots = [(e.heldout_error, "on held-out text")] if math.isfinite(e.heldout_error) else []
        bars = [Bar(e.calibration_error, mark_of(e.setting.method).series)]
        rows.append(
            BarRow(tight(e.setting.label), bars, cells, dots=dots, title=f"{e.setting.label}, {format_ms(e.ms)}")
        )
    return rows


def weight_words(errors: Sequence[PruneErrors]) -> str:
    """How far the weights themselves moved, by magnitude and by the method that loses least of the output."""
    known = [e for e in errors if math.isfinite(e.calibration_error) and math.isfinite(e.weight_error)]
    base = next((e for e in known if e.setting.method == "magnitude"), None)
    least = min(known, key=lambda e: e.calibration_error, default=None)
    if base is None or least is None or least is base or least.weight_error <= base.weight_error:
        return ""
    return (
        f"Of the weights, |W′ − W| / |W|, magnitude changes the least: {percent(base.weight_error)} against "
        f"{percent(least.weight_error)}. Small weights are not those that matter least."
    )


def errors_verdict(errors: Sequence[PruneErrors], *, live: bool) -> tuple[str, str, str]:
    """Tone, heading and note: which method loses least."""
    known = [e for e in errors if math.isfinite(e.calibration_error)]
    if len(known) < 2:
        return ("pending" if live else "none"), ("The other methods are on their way." if live else ""), ""
    least = min(known, key=lambda e: e.calibration_error)
    base = next((e for e in known if e.setting.method == "magnitude"), None)
    text = f"Least lost{' so far' if live else ''}: {least.setting.label}, {percent(least.calibration_error)}"
    if base is None or base is least or not base.calibration_error:
        return ("pending" if live else "none"), text, ""
    ratio = least.calibration_error / base.calibration_error
    note = f"{number(ratio, 2)} times what magnitude loses on the calibration text, with as many weights gone."
    return ("pending" if live else "good"), text, note


def error_table(errors: Sequence[PruneErrors]) -> Table:
    """Every method on every matrix."""
    head = ["layer", "projection", "setting", "sparsity", "output error, calibration", "output error, held-out"]
    head += ["of magnitude's", "weight error", "ms"]
    rows = [
        [
            e.layer,
            e.projection,
            e.setting.label,
            _number(e.sparsity),
            _number(e.calibration_error),
            _number(e.heldout_error),
            _number(e.to_magnitude),
            _number(e.weight_error),
            _number(e.ms),
        ]
        for e in errors
    ]
    return Table("pruning_errors", head, rows)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
