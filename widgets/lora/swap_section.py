"""Several adapters on one base: what each says, what switching takes, and that going back changes nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import ipywidgets as ipw

from lab.events.lora import SwapRow
from widgets.bar_table import BarRow, BarTable, Column
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_bytes, format_ms, split_bytes, split_ms
from widgets.lora.proof import differences
from widgets.lora.state import LoraState
from widgets.numbers import number
from widgets.section import Section, choose_children, section
from widgets.text import Words
from widgets.token_text import plain_text, quoted
from widgets.verdict import Verdict

COLUMNS = (Column("switched in"), Column("adapter"), Column("again"))


class SwapSection(Section[LoraState]):
    """The verdict, figures, and for each prompt a table of what base and adapters say."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._figures = FigureRow()
        self._tables: list[tuple[Words, BarTable]] = []
        self._box = ipw.VBox([])
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all rows")
        self.widget = section(self._verdict, self._figures, self._box, self._caption, self._table)

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        rows = state.swaps[: upto + 1]
        self._verdict.show(*swap_verdict(state, rows, live=live))
        self._figures.show(swap_figures(state, rows))
        prompts = list(dict.fromkeys(r.prompt for r in rows))
        while len(self._tables) < len(prompts):
            table = BarTable(label=f"Prompt {len(self._tables) + 1}, by adapter", first="switched on", picture="swap")
            table.add_class("lab-said")
            self._tables.append((Words(css_class="lab-heading"), table))
        for (words, table), prompt in zip(self._tables, prompts, strict=False):
            words.say(("h2", plain_text(quoted(prompt, 160))))
            table.show([swap_row(r) for r in rows if r.prompt == prompt], COLUMNS, most=1.0)
        choose_children(self._box, [w for pair in self._tables[: len(prompts)] for w in pair])
        self._caption.say(("p", _caption(state) if rows else ""))
        if not live:
            self._table.show(swap_table(state))

    def tables(self, state: LoraState) -> Sequence[Table]:
        return (swap_table(state),)


def swap_row(row: SwapRow) -> BarRow:
    """One prompt with one adapter on."""
    again = {None: "", True: "✓ equal", False: "✕ other words"}[row.same_again]
    return BarRow(
        label=plain_text(row.adapter) or "base",
        note=plain_text(row.text.strip()).replace("\n", " ↵ ") or "∅",
        cells=[format_ms(row.switch_ms), format_bytes(row.bytes) if row.adapter else "none", again],
    )


def swap_verdict(state: LoraState, rows: Sequence[SwapRow], *, live: bool) -> tuple[str, ...]:
    """Tone, heading and notes: whether the first adapter is itself again after the other."""
    seen = [r.same_again for r in rows if r.same_again is not None]
    wrong = next((r for r in rows if r.same_again is False), None)
    if wrong is not None:
        return "bad", f"{plain_text(wrong.adapter)} says something else the second time", "Switching left a trace."
    if live and state.end is None:
        return "pending", "The same prompts, one base, several adapters", "Base, first adapter, second, first again."
    if not seen:
        return "none", "The run ended before an adapter came back"
    some = f"{len(seen)} prompt{'s' if len(seen) != 1 else ''}"
    return "good", f"A, B, A: the first adapter is itself again, {some}", "The same words, without loading anything."


def swap_figures(state: LoraState, rows: Sequence[SwapRow]) -> list[dict[str, Any]]:
    """Switching time, memory, the base."""
    taken = [r.switch_ms for r in rows if math.isfinite(r.switch_ms)]
    value, unit = split_ms(median(taken)) if taken else ("", "")
    sizes = [a.bytes for a in state.adapters.values()]
    size, size_unit = split_bytes(sum(sizes)) if sizes else ("", "")
    found = differences(state)
    most = max((difference for _, difference in found), default=None)
    return [
        {
            "id": "switch_ms",
            "value": value,
            "unit": f"{unit} to switch" if unit else "to switch",
            "badge": "MEASURED",
            "note": f"median of {len(taken)}" if taken else "",
            "title": "Naming another adapter: the next product takes its A and B.",
        },
        {
            "id": "adapter_bytes",
            "value": size,
            "unit": f"{size_unit} for {len(sizes)} adapters" if sizes else "for the adapters",
            "badge": "DERIVED",
            "note": "the base is in memory once",
            "title": "Of the factors of all adapters together.",
        },
        {
            "id": "swap_difference",
            "value": number(most, 2) if most is not None else "",
            "unit": "",
            "badge": "MEASURED",
            "note": "max |logit difference|, merged against switched on",
            "title": "The largest difference of any logit, over the prompt's last places.",
        },
    ]


def _caption(state: LoraState) -> str:
    words = "MEASURED, greedy. Switched in: the time from asking for an adapter until the model is ready to answer."
    names = list(state.adapters)
    if len(names) == 2 and names[1].endswith(", reversed"):
        words += " The second adapter is the first one with its sign reversed: it takes away what the first adds."
    return words


def swap_table(state: LoraState) -> Table:
    """Every row."""
    head = ["prompt", "adapter", "text", "switch, ms", "adapter bytes", "the same again"]
    rows = [
        [
            r.prompt,
            r.adapter or "base",
            r.text,
            float(f"{r.switch_ms:.4g}") if math.isfinite(r.switch_ms) else None,
            r.bytes,
            {None: "", True: "yes", False: "no"}[r.same_again],
        ]
        for r in state.swaps
    ]
    return Table("swap", head, rows)
