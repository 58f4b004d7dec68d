"""How large is it then? Bytes of a model by formula, for any bits and groups."""

from __future__ import annotations

import json
from typing import Any

from widgets.asked import Answer, Asked
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_bytes, format_count
from widgets.numbers import number
from widgets.quantization.sentences import bits
from widgets.quantization.state import QuantizationState
from widgets.quantization.storage_fields import DEFAULTS, MOST_IN_LINK, PASTE, SCHEMA, from_link, question_of
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words

PARTS = ("code_bytes", "scale_bytes", "zero_bytes", "dense_bytes")


class StorageSection(Section[QuantizationState]):
    """Controls, the sum, and what it is made of. DERIVED: nothing is loaded for it."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.values = dict(DEFAULTS)
        self._asked = Asked(desk, "storage", _checked)
        self._controls = Controls(schema=SCHEMA, values=self.values)
        self._controls.add_class("lab-inline")
        self._controls.on_values(self._chosen)
        self._figures = FigureRow()
        self._bars = BarTable(label="Bytes of a quantized model", first="part", picture="storage")
        self._words = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of the parts")
        self.widget = section(
            heading("Storage calculator", "What codes, scales and zero points take, for any model. By formula alone."),
            self._controls,
            self._figures,
            self._bars,
            self._words,
            self._table,
        )

    def question(self) -> dict[str, Any]:
        """What is asked."""
        return question_of(self.values)

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            self.values.update({k: v for k, v in values.items() if k in DEFAULTS})
        self._desk.touch()

    @property
    def _empty(self) -> bool:
        """Whether nothing was pasted yet."""
        return self.values["model"] == "config" and not self.values["config"].strip()

    def settle(self, state: QuantizationState) -> None:
        """Ask for the sum of the values on screen."""
        del state
        if not self._empty:
            self._asked.ask(self.question())

    def reset(self) -> None:
        """The model may be another."""
        self._asked.clear()

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw the sum; while an answer is on its way, the last one stays."""
        del state, upto
        self._controls.set_values(self.values)
        answer = None if self._empty else self._asked.ask(self.question()) or self._asked.last
        why = PASTE if self._empty else self._asked.why_not(self.question())
        show_if(answer is not None and not why, self._figures, self._bars, self._table)
        if answer is None or why:
            self._words.say(("p", why or "Waiting for the sum."))
            return
        self._figures.show(storage_figures(answer))
        rows = storage_rows(answer)
        self._bars.show(rows, [Column("size"), Column("bits a weight")], most=float(answer["total"]["before_bytes"]))
        self._words.say(*(("p", text) for text in storage_words(answer)))
        if not live:
            self._table.show(storage_table(answer))

    def tables(self, state: QuantizationState) -> list[Table]:
        """The sum on screen and its parts."""
        del state
        return [storage_table(self._asked.last)] if self._asked.last else []

    def link(self) -> dict[str, Any]:
        """What differs from the defaults; of a config that was counted the keys that were read, not all of its text."""
        values = dict(self.values)
        if values["model"] == "config":
            known = None if self._empty else self._asked.known(self.question())
            read = json.dumps(known["read"]) if known and known.get("read") else values["config"]
            values["config"] = read if len(read) <= MOST_IN_LINK else ""
        else:
            values["config"] = ""
        return {f"size_{k}": v for k, v in values.items() if v != DEFAULTS[k]}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take values from a link where they are within the limits."""
        self.values.update(from_link(settings))


def gigabytes(count: float) -> str:
    """Bytes in GB or MB, as texts about models write them: "3.50 GB"."""
    return f"{number(count / 1e9)} GB" if count >= 1e8 else f"{number(count / 1e6)} MB"


def storage_figures(answer: Answer) -> list[dict[str, Any]]:
    """The model after and before, and the bits of a weight."""
    whole = answer["total"]
    ratio = whole["before_bytes"] / whole["bytes"] if whole["bytes"] else None
    return [
        _figure("size", gigabytes(whole["bytes"]), "quantized", format_bytes(whole["bytes"])),
        _figure("before", gigabytes(whole["before_bytes"]), "before", format_bytes(whole["before_bytes"])),
        _figure("stored_bits", bits(whole["bits_per_weight"]), "bits a weight", f"{number(ratio, 2)} × smaller"),
    ]


def _figure(name: str, value: str, unit: str, note: str) -> dict[str, Any]:
    amount, _, own = value.partition(" ")
    return {"id": name, "value": amount, "unit": f"{own} {unit}".strip(), "badge": "DERIVED", "note": note}


def storage_rows(answer: Answer) -> list[BarRow]:
    """Before, after, and each part of it, on one scale."""
    whole = answer["total"]
    names = {"code_bytes": "codes", "scale_bytes": "scales", "zero_bytes": "zero points", "dense_bytes": "left dense"}
    rows = [BarRow("before", [Bar(float(whole["before_bytes"]), 4)], _cells(whole["before_bytes"], whole["weights"]))]
    for part in PARTS:
        if whole[part]:
            rows.append(BarRow(names[part], [Bar(float(whole[part]), 1)], _cells(whole[part], whole["weights"])))
    return rows


def _cells(size: int, weights: int) -> list[str]:
    return [gigabytes(size), bits(8 * size / weights) if weights else "–"]


def storage_words(answer: Answer) -> list[str]:
    """The sum in words, and what stays dense."""
    whole = answer["total"]
    parts = [f"{gigabytes(whole['code_bytes'])} of codes", f"{gigabytes(whole['scale_bytes'])} of scales"]
    if whole["zero_bytes"]:
        parts.append(f"{gigabytes(whole['zero_bytes'])} of zero points")
    if whole["dense_bytes"]:
        parts.append(f"{gigabytes(whole['dense_bytes'])} left dense")
    said = f"{answer['name']}: {' + '.join(parts)}, against {gigabytes(whole['before_bytes'])}."
    dense = [f"{k['kind']}: {k['dense']}" for k in answer["kinds"] if k.get("dense")]
    left = f"Left dense: {'; '.join(dense)}." if dense else ""
    return [text for text in (said, left, *answer.get("notes", ())) if text]


def storage_table(answer: Answer) -> Table:
    """Each kind of matrix."""
    head = [
        "what",
        "weights",
        "codes, bytes",
        "scales, bytes",
        "zero points, bytes",
        "left dense, bytes",
        "before, bytes",
        "bits a weight",
        "why dense",
    ]
    rows = [
        [k["kind"], k["weights"], *(k[p] for p in PARTS), k["before_bytes"], k["bits_per_weight"], k.get("dense", "")]
        for k in [*answer["kinds"], answer["total"]]
    ]
    return Table("storage", head, rows)


def _checked(answer: Answer) -> Answer:
    """The answer, if it can be drawn.

    Raises:
        KeyError, TypeError: it cannot.
    """
    for kind in [*answer["kinds"], answer["total"]]:
        for name in (*PARTS, "weights", "bytes", "before_bytes"):
            format_count(kind[name])
        number(kind["bits_per_weight"])
    notes = [str(note) for note in answer.get("notes", ())]
    return {**answer, "name": str(answer["name"]), "notes": notes}
