"""What the layer's outputs lose by each method, beside magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.events.pruning import PruneErrors
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line
from widgets.choice import Choice
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.format import NOTHING, format_ms
from widgets.numbers import number, percent
from widgets.pruning.method_marks import mark_of, tight
from widgets.pruning.state import Matrix, PruningState, magnitude_of
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.verdict import Verdict


@dataclass(frozen=True)
class Text:
    """A text that errors were measured on: its name, and the error of a method on it."""

    name: str
    of: Callable[[PruneErrors], float]


HELD_OUT = Text("held-out text", lambda e: e.heldout_error)
CALIBRATION = Text("calibration text", lambda e: e.calibration_error)


def leading(errors: Sequence[PruneErrors]) -> tuple[Text, Text]:
    """The text that methods are compared on, and the other one: held-out, unless a method was not measured there."""
    known = [e for e in errors if math.isfinite(e.calibration_error)]
    held_out = bool(known) and all(math.isfinite(e.heldout_error) for e in known)
    return (HELD_OUT, CALIBRATION) if held_out else (CALIBRATION, HELD_OUT)


class ErrorsSection(Section[PruningState]):
    """One matrix: a mark a method on a scale of powers of ten, magnitude at the dashed line; all in the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._choice = Choice(desk, "Errors of")
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
        text, other = leading(own)
        base = magnitude_of(own)
        line = Line(text.of(base), "magnitude") if base and math.isfinite(text.of(base)) else None
        heads = (Column(text.name.partition(" ")[0]), Column(other.name.partition(" ")[0]), Column("× magnitude"))
        self._bars.show(error_rows(own), heads, line=line, log=tick)
        self._caption.say(
            (
                "p",
                f"MEASURED on {matrix.title}, on a scale of powers of ten. Filled: on {text.name}, ring: on "
                f"{other.name}. {weight_words(own)}".strip(),
            )
        )
        if not live:
            self._table.show(error_table(state.errors))

    def tables(self, state: PruningState) -> Sequence[Table]:
        return (error_table(state.errors),)


def error_rows(errors: Sequence[PruneErrors]) -> list[BarRow]:
    """A row a method, the least error on the leading text first; those without a figure last."""
    text, other = leading(errors)
    base = magnitude_of(errors)
    rows = []
    for e in sorted(errors, key=lambda e: (not math.isfinite(text.of(e)), text.of(e))):
        error, beside = text.of(e), other.of(e)
        ratio = error / text.of(base) if base is not None and text.of(base) else math.nan
        cells = [percent(error), percent(beside), "1" if e is base else times(ratio)]
        if not math.isfinite(error):
            rows.append(BarRow(tight(e.setting.label), note="not measured", cells=cells))
            continue
        dots = [(beside, f"on {other.name}")] if math.isfinite(beside) else []
        bars = [Bar(error, mark_of(e.setting.method).series)]
        rows.append(
            BarRow(tight(e.setting.label), bars, cells, dots=dots, title=f"{e.setting.label}, {format_ms(e.ms)}")
        )
    return rows


def tick(share: float) -> str:
    """A share below a scale: "0.1 %"."""
    return f"{100 * share:g}\u00a0%"


def times(ratio: float) -> str:
    """A ratio of two errors: "0.29 ×"; nothing where it is none."""
    return f"{number(ratio, 2)} ×" if math.isfinite(ratio) else NOTHING


def weight_words(errors: Sequence[PruneErrors]) -> str:
    """How far the weights themselves moved, by magnitude and by the method that loses least of the output."""
    text, _ = leading(errors)
    known = [e for e in errors if math.isfinite(text.of(e)) and math.isfinite(e.weight_error)]
    base = magnitude_of(known)
    least = min(known, key=text.of, default=None)
    if base is None or least is None or least is base or least.weight_error <= base.weight_error:
        return ""
    return (
        f"Of the weights, |W′ − W| / |W|, magnitude changes the least: {percent(base.weight_error)} against "
        f"{percent(least.weight_error)}. Small weights are not those that matter least."
    )


def errors_verdict(errors: Sequence[PruneErrors], *, live: bool) -> tuple[str, str, str]:
    """Tone, heading and note: which method loses least, and on which text."""
    text, _ = leading(errors)
    known = [e for e in errors if math.isfinite(text.of(e))]
    if len(known) < 2:
        return ("pending" if live else "none"), ("The other methods are on their way." if live else ""), ""
    least = min(known, key=text.of)
    base = magnitude_of(known)
    so_far = " so far" if live else ""
    found = f"Least lost on {text.name}{so_far}: {tight(least.setting.label)}, {tight(percent(text.of(least)))}"
    if base is None or base is least or not text.of(base):
        return ("pending" if live else "none"), found, ""
    ratio = text.of(least) / text.of(base)
    note = f"{number(ratio, 2)} times what magnitude loses there, with as many weights gone."
    return ("pending" if live else "good"), found, note


def error_table(errors: Sequence[PruneErrors]) -> Table:
    """Every method on every matrix."""
    head = ["layer", "projection", "setting", "sparsity", "output error, calibration", "output error, held-out"]
    head += ["of magnitude's, calibration", "weight error", "ms"]
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
