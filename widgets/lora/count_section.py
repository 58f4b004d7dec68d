"""How many numbers is that? The parameters of an update of one matrix of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from widgets.action_row import Action, ActionRow
from widgets.asked import Answer, Asked
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.controls import Controls
from widgets.experiment import Desk, Table
from widgets.format import typeset_share
from widgets.lora.state import LoraState
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words

USUAL = {"columns": 4096, "rows": 4096, "rank": 8}
TRIED = (
    ("4096 × 4096, rank 8", {"columns": 4096, "rows": 4096, "rank": 8}),
    ("576 × 576, rank 8", {"columns": 576, "rows": 576, "rank": 8}),
    ("11008 × 4096, rank 64", {"columns": 4096, "rows": 11008, "rank": 64}),
    ("4096 × 4096, rank 2048", {"columns": 4096, "rows": 4096, "rank": 2048}),
)
_LIMITS = {"columns": 1_000_000, "rows": 1_000_000, "rank": 100_000}


class CountSection(Section[LoraState]):
    """Three numbers in, r (in + out) of in · out out."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._values = dict(USUAL)
        self._asked = Asked(desk, "count", counted)
        self._controls = Controls(schema=_SCHEMA, values=self._values)
        self._controls.add_class("lab-inline")
        self._controls.on_values(self._chosen)
        self._tried = ActionRow(label="Shapes to try")
        self._tried.show([Action(str(i), label) for i, (label, _) in enumerate(TRIED)])
        self._tried.on_action(self._try)
        self._words = Words(css_class="lab-answer")
        self._bars = BarTable(label="Parameters of the update beside those of the matrix", first="", picture="count")
        self._caption = Words(css_class="lab-caption")
        self.widget = section(
            heading("How many numbers is that?", "A has rank × in, B has out × rank; the matrix has out × in."),
            self._controls,
            self._tried,
            self._words,
            self._bars,
            self._caption,
        )

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            self._values |= {k: int(v) for k, v in values.items() if k in USUAL and isinstance(v, int)}
        self._desk.touch()

    def _try(self, name: str) -> None:
        with self._desk.lock:
            self._values = dict(TRIED[int(name)][1])
        self._desk.touch()

    def settle(self, state: LoraState) -> None:
        """Ask, so that a recording has the answer."""
        del state
        self._asked.ask(dict(self._values))

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del state, upto, live
        self._controls.set_values(dict(self._values))
        answer = self._asked.ask(dict(self._values))
        why = self._asked.why_not(dict(self._values))
        show_if(answer, self._bars, self._caption)
        if answer is None:
            self._words.say(("p", why or "It is being counted."))
            return
        self._words.say(("p", count_words(answer)))
        self._bars.show(count_rows(answer), (Column("numbers"), Column("share")))
        self._caption.say(("p", "DERIVED: rank × (in + out), of in × out."))

    def tables(self, state: LoraState) -> Sequence[Table]:
        del state
        last = self._asked.last
        head = ["rows", "columns", "rank", "parameters", "of"]
        return (Table("count", head, [[last[k] for k in head]]),) if last else ()

    def link(self) -> dict[str, Any]:
        moved = {name: value for name, value in self._values.items() if value != USUAL[name]}
        return {f"count_{name}": moved.get(name) for name in USUAL}

    def restore(self, settings: dict[str, Any]) -> None:
        for name in USUAL:
            wanted = settings.get(f"count_{name}")
            if isinstance(wanted, int) and not isinstance(wanted, bool) and 1 <= wanted <= _LIMITS[name]:
                self._values[name] = wanted


def counted(answer: Answer) -> Answer:
    """The answer, if it can be drawn.

    Raises:
        KeyError, TypeError, ValueError: it cannot.
    """
    found = {name: int(answer[name]) for name in ("rows", "columns", "rank", "parameters", "of")}
    if found["of"] < 1:
        raise ValueError("a matrix has no numbers")
    return found


def count_words(a: Answer) -> str:
    """The sum in words."""
    some = f"{a['rank']:,} × ({a['columns']:,} + {a['rows']:,}) = {a['parameters']:,} of {a['of']:,}"
    if a["parameters"] >= a["of"]:
        return f"{some}: no fewer than the matrix itself has."
    return f"{some}: {typeset_share(a['parameters'] / a['of'])}."


def count_rows(a: Answer) -> list[BarRow]:
    """The update beside the matrix."""
    share = typeset_share(a["parameters"] / a["of"])
    return [
        BarRow("the matrix", [Bar(a["of"], 1)], [f"{a['of']:,}", "100\u00a0%"]),
        BarRow("A and B", [Bar(a["parameters"], 2)], [f"{a['parameters']:,}", share]),
    ]


def _field(name: str, title: str) -> dict[str, Any]:
    limits = {"minimum": 1, "maximum": _LIMITS[name], "default": USUAL[name]}
    return {"type": "integer", "title": title, "hint": "number", "group": "main", **limits}


_SCHEMA: dict[str, Any] = {
    "properties": {"columns": _field("columns", "in"), "rows": _field("rows", "out"), "rank": _field("rank", "rank r")}
}
