"""Number formats side by side: range, precision, their error on the matrix, and what one value becomes."""

from __future__ import annotations

import math
from typing import Any

from lab.events.quantization_methods import NumberFormat
from widgets.asked import Answer, Asked
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.numbers import number, percent
from widgets.quantization.sections import WEIGHT
from widgets.quantization.state import Matrix, QuantizationState
from widgets.quantization.tables import format_table
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words

DEFAULTS: dict[str, float] = {"value": 0.1, "largest": 1.0}


class FormatsSection(Section[QuantizationState]):
    """Error on the matrix from the run; a value's fate by inspection, as the boxes change. They are in the link."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.values = dict(DEFAULTS)
        self._asked = Asked(desk, "formats", _checked)
        self._bars = BarTable(label="Error of the matrix in each number format", first="format", picture="formats")
        self._caption = Words(css_class="lab-caption")
        self._controls = Controls(schema=_SCHEMA, values=self.values)
        self._controls.add_class("lab-inline")
        self._controls.on_values(self._chosen)
        self._became = BarTable(label="What a value becomes in each format", first="format", picture="value")
        self._words = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of the formats")
        self._of_run = (self._bars, self._caption, self._table)
        self._value_table = DataTable(summary="Table of the value")
        self.widget = section(
            heading(
                "Number formats side by side",
                "Floats spend bits on range (exponent) and on precision (mantissa); INT8 has even steps of a scale.",
            ),
            self._bars,
            self._caption,
            self._table,
            heading("What one value becomes"),
            self._controls,
            self._became,
            self._words,
            self._value_table,
        )

    def question(self) -> dict[str, float]:
        """What is asked."""
        return {"value": float(self.values["value"]), "largest": float(self.values["largest"])}

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            self.values.update({k: float(v) for k, v in values.items() if k in DEFAULTS})
        self._desk.touch()

    def settle(self, state: QuantizationState) -> None:
        """Ask what the value in the box becomes."""
        if state.task == "layer":
            self._asked.ask(self.question())

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw both tables."""
        del upto
        told = state.formats[-1] if state.formats else None
        show_if(told, *self._of_run)
        formats = told.formats if told else ()
        self._bars.show(
            [_row(f) for f in formats],
            [Column("weight error", WEIGHT), Column("largest"), Column("next after 1")],
            empty="" if told else "The run has not put the matrix in number formats.",
        )
        where = Matrix(told.layer, told.projection).title if told else ""
        self._caption.say(*(("p", text) for text in _notes(formats, where) if text))
        found = self._asked.ask(self.question()) or self._asked.last
        self._controls.set_values(self.values)
        became = found["formats"] if found else []
        self._became.show(
            [_became(f, found["value"]) for f in became] if found else [],
            [Column("becomes"), Column("error", WEIGHT), Column("of the value")],
            empty="" if found else self._asked.why_not(self.question()) or "The value is being asked for.",
        )
        self._words.say(*(("p", text) for text in _value_notes(became)))
        if not live:
            self._table.show(format_table(state))
            self._value_table.show(value_table(found))

    def tables(self, state: QuantizationState) -> list[Table]:
        """Formats on the matrix, and the value in each."""
        return [format_table(state), value_table(self._asked.last)]

    def link(self) -> dict[str, Any]:
        """The value and what it shares its scale with."""
        return {f"format_{k}": v for k, v in self.values.items() if v != DEFAULTS[k]}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take both from a link."""
        for name, field in _SCHEMA["properties"].items():
            value = settings.get(f"format_{name}")
            good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if good and field["minimum"] <= float(value or 0) <= field["maximum"]:
                self.values[name] = float(value or 0)


def _row(form: NumberFormat) -> BarRow:
    finite = form.weight_error if math.isfinite(form.weight_error) else 0.0
    return BarRow(
        label=f"{form.name}, {form.bits} bits" if str(form.bits) not in form.name else form.name,
        bars=[Bar(finite, WEIGHT)],
        cells=[percent(form.weight_error), number(form.largest), number(form.epsilon)],
        title=f"{form.beyond:,} weights beyond the largest number" if form.beyond else "",
    )


def _notes(formats: tuple[NumberFormat, ...], where: str) -> list[str]:
    if not formats:
        return []
    beyond = [f"{f.name}: {f.beyond:,} weights beyond its largest number" for f in formats if f.beyond]
    scaled = [f.name for f in formats if f.scaled]
    fit = (
        f" {', '.join(scaled)} {'was' if len(scaled) == 1 else 'were'} scaled to fit; the others were not."
        if scaled
        else ""
    )
    said = f"MEASURED on {where}. Next after 1: from 1 to the next larger number.{fit}"
    return [said, "; ".join(beyond) + "." if beyond else ""]


def _checked(answer: Answer) -> Answer:
    """The answer, if it can be drawn.

    Raises:
        KeyError, TypeError, ValueError: it cannot.
    """
    formats = [{**f, "became": float(f["became"]), "label": str(f["label"])} for f in answer["formats"]]
    return {"value": float(answer["value"]), "formats": formats}


def _became(form: Answer, value: float) -> BarRow:
    became = form["became"]
    error = became - value
    known = math.isfinite(error)
    relative = percent(abs(error / value)) if known and value else "0 %" if known and not error else ""
    return BarRow(
        label=form["label"],
        bars=[Bar(abs(error) if known else 0.0, WEIGHT)],
        cells=[number(became, 6), number(abs(error)) if known else "–", relative],
        title=f"{form.get('exponent_bits', 0)} bits of exponent, {form.get('mantissa_bits', 0)} of mantissa",
    )


def _value_notes(formats: list[Answer]) -> list[str]:
    said = []
    for form in formats:
        if form.get("saturated"):
            said.append(f"{form['label']}: beyond the largest number, {number(form.get('largest'))}. Result: "
                        f"{form.get('overflow', 'the largest one')}.")  # fmt: skip
        elif form.get("underflowed"):
            said.append(f"{form['label']}: too small for it, becomes 0.")
    return said


def value_table(answer: Answer | None) -> Table:
    """What the value becomes in each format."""
    rows: list[list[Any]] = []
    for form in answer["formats"] if answer else ():
        became = form["became"]
        rows.append([form["label"], answer and answer["value"], became if math.isfinite(became) else str(became)])
    return Table("value_in_formats", ["format", "value", "becomes"], rows)


def _box(title: str, low: float, high: float, default: float, words: str) -> dict[str, Any]:
    return {
        "type": "number",
        "title": title,
        "description": words,
        "minimum": low,
        "maximum": high,
        "default": default,
        "hint": "number",
        "group": "main",
        "step": 0.1,
    }


_SCHEMA: dict[str, Any] = {
    "properties": {
        "value": _box("Value", -1e6, 1e6, 0.1, "Any number from -1,000,000 to 1,000,000."),
        "largest": _box("Shares INT8's scale with", 0, 1e6, 1.0, "The largest |w| of its group; 0: the value itself."),
    }
}
