"""How large is it then? Bytes of a model by formula, for any bits and groups."""

from __future__ import annotations

from typing import Any

from lab.experiments.quantization.choices import KINDS
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_bytes, format_count
from widgets.quantization.asked import Answer, Asked
from widgets.quantization.sections import Section, heading, section
from widgets.quantization.sentences import bits, number
from widgets.quantization.state import QuantizationState
from widgets.text import Words

DEFAULTS: dict[str, Any] = {
    "model": "count",
    "billions": 7.0,
    "bits": 4,
    "group_size": "128",
    "kind": "absmax",
    "scale_format": "float16",
    "dense_bits": "16",
}
PARTS = ("code_bytes", "scale_bytes", "zero_bytes", "dense_bytes")


class StorageSection(Section):
    """Controls, the sum, and what it is made of. DERIVED: nothing is loaded for it."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.values = dict(DEFAULTS)
        self._asked = Asked(desk, "storage", _checked)
        self._controls = Controls(schema=_SCHEMA, values=self.values)
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
        v = self.values
        asked: dict[str, Any] = {
            "model": v["model"],
            "bits": int(v["bits"]),
            "group_size": int(v["group_size"]),
            "kind": v["kind"],
            "scale_format": v["scale_format"],
            "dense_bits": int(v["dense_bits"]),
        }
        return {**asked, "weights": round(v["billions"] * 1e9)} if v["model"] == "count" else asked

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            self.values.update({k: v for k, v in values.items() if k in DEFAULTS})
        self._desk.touch()

    def settle(self, state: QuantizationState) -> None:
        """Ask for the sum of the values on screen."""
        del state
        self._asked.ask(self.question())

    def reset(self) -> None:
        """The model may be another."""
        self._asked.clear()

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw the sum; while an answer is on its way, the last one stays."""
        del state, upto
        answer = self._asked.ask(self.question()) or self._asked.last
        self._controls.set_values(self.values)
        why = self._asked.why_not(self.question())
        if answer is None or why:
            self._words.say(("p", why or "Waiting for the sum."))
            return
        self._figures.show(storage_figures(answer))
        rows = storage_rows(answer)
        self._bars.show(rows, [Column("bytes"), Column("bits a weight")], most=float(answer["total"]["before_bytes"]))
        self._words.say(*(("p", text) for text in storage_words(answer)))
        if not live:
            self._table.show(storage_table(answer))

    def tables(self, state: QuantizationState) -> list[Table]:
        """The sum on screen and its parts."""
        del state
        return [storage_table(self._asked.last)] if self._asked.last else []

    def link(self) -> dict[str, Any]:
        """What differs from the defaults."""
        return {f"size_{k}": v for k, v in self.values.items() if v != DEFAULTS[k]}

    def restore(self, settings: dict[str, Any]) -> None:
        """Take values from a link where they are within the limits."""
        for name, field in _SCHEMA["properties"].items():
            value = settings.get(f"size_{name}")
            if "enum" in field:
                fits = isinstance(value, str) and value in field["enum"]
            else:
                number_like = isinstance(value, int | float) and not isinstance(value, bool)
                fits = number_like and field["minimum"] <= value <= field["maximum"]
                fits = fits and (field["type"] == "number" or isinstance(value, int))
            if fits:
                self.values[name] = value


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
    return [text for text in (said, left) if text]


def storage_table(answer: Answer) -> Table:
    """Each kind of matrix."""
    head = [
        "what",
        "weights",
        "codes B",
        "scales B",
        "zero points B",
        "dense B",
        "before B",
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
    return {**answer, "name": str(answer["name"])}


def _choose(title: str, values: dict[str, str], default: str, hint: str = "segmented") -> dict[str, Any]:
    return {
        "type": "string",
        "title": title,
        "enum": list(values),
        "labels": list(values.values()),
        "default": default,
        "hint": hint,
        "group": "main",
    }


def _slide(title: str, kind: str, low: float, high: float, default: float, **more: Any) -> dict[str, Any]:
    field = {"type": kind, "title": title, "minimum": low, "maximum": high, "default": default, "hint": "slider"}
    return {**field, "group": "main", **more}


_SCHEMA: dict[str, Any] = {
    "properties": {
        "model": _choose(
            "Model",
            {"this": "this one", "llama-2-7b": "Llama 2 7B", "count": "any number of weights"},
            "count",
            "select",
        ),
        "billions": _slide("Weights", "number", 0.1, 100.0, 7.0, step=0.1, unit="billion", when={"model": "count"}),
        "bits": _slide("Bits", "integer", 2, 8, 4, unit="bits"),
        "group_size": _choose("Group size", {s: s for s in ("16", "32", "64", "128", "256", "512")}, "128", "slider"),
        "kind": _choose("Levels", {str(k): v for k, v in KINDS.items()}, "absmax", "select")
        | {"when": {"model": ["this", "llama-2-7b"]}},
        "scale_format": _choose("Scales", {"float16": "2 bytes", "float32": "4 bytes"}, "float16"),
        "dense_bits": _choose("Dense", {"8": "8 bits", "16": "16 bits", "32": "32 bits"}, "16"),
    }
}
