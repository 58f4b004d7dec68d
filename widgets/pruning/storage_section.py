"""What is stored? Bytes of the pruned matrices in each form, and from which sparsity on a form saves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.events.pruning import StoredBytes, StoredForm
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line
from widgets.choice import Choice
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.format import format_bytes
from widgets.numbers import capital, number, percent
from widgets.pruning.losses import stored_loss
from widgets.pruning.method_marks import DENSE, mark_of
from widgets.pruning.state import PruningState
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.verdict import Verdict


class StorageSection(Section[PruningState]):
    """A bar a form against the dense one, and where each breaks even."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._choice = Choice(desk, "Bytes of")
        self._verdict = Verdict()
        self._bars = BarTable(label="Bytes in each form", first="form", picture="bytes stored")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all forms")
        self.widget = section(
            heading(
                "What does it take to store?",
                "Zeros take as many bytes as other numbers, unless the form leaves them out.",
            ),
            self._choice.widget,
            self._verdict,
            self._bars,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: PruningState) -> bool:
        return bool(state.stored)

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        del upto
        every = list(state.stored.values())
        if not every:
            return
        several = len({s.setting for s in every}) > 1
        names = [f"{s.scope}, {s.setting.label}" if several else s.scope for s in every]
        stored = every[self._choice.show(names)]
        dense = dense_of(stored)
        self._verdict.show(*stored_verdict(stored, *stored_loss(state, stored)))
        heads = (Column("bytes"), Column("of dense"), Column("saves from"))
        self._bars.show(form_rows(stored), heads, line=Line(float(dense), "dense") if dense else None)
        gone = 1 - stored.kept / stored.weights if stored.weights else math.nan
        self._caption.say(
            (
                "p",
                f"DERIVED by count for {stored.setting.label} on {stored.scope}: {stored.kept:,} of "
                f"{stored.weights:,} weights kept ({percent(gone)} pruned), {stored.value_bytes} bytes each. “Saves "
                "from”: the sparsity from which on a form is smaller than dense.",
            ),
            *(("p", f"{words}.") for f in stored.forms if (words := form_words(f))),
        )
        if not live:
            self._table.show(stored_table(every))

    def tables(self, state: PruningState) -> Sequence[Table]:
        return (stored_table(list(state.stored.values())),)


def dense_of(stored: StoredBytes) -> int:
    """Bytes of the dense form."""
    return next((f.bytes for f in stored.forms if f.name == "dense"), stored.weights * stored.value_bytes)


def best_of(stored: StoredBytes) -> StoredForm | None:
    """The smallest form that the mask allows."""
    return min((f for f in stored.forms if f.valid), key=lambda f: f.bytes, default=None)


def stored_verdict(stored: StoredBytes, tone: str, lost: str) -> tuple[str, ...]:
    """Tone, heading and notes: whether any form saves, and what was lost for it.

    Args:
        tone, lost: see `stored_loss`.
    """
    dense, best = dense_of(stored), best_of(stored)
    if best is None or not dense:
        return "none", ""
    if best.bytes >= dense:
        return "even", f"No form saves at {percent(stored.setting.sparsity)}", "What describes the places takes more."
    text = f"Smallest: {best.name}, {percent(best.bytes / dense)} of dense"
    return tone, text, f"{format_bytes(best.bytes)} against {format_bytes(dense)}.", lost


ROWS = "rows removed"


def form_words(form: StoredForm) -> str:
    """What is counted in a form, or why the mask does not allow it."""
    if form.name == ROWS and not form.valid:
        return (
            "Rows removed: a dense matrix becomes smaller only by whole rows that are all zeros. This mask leaves some "
            "weights in every row, so there is none to leave out; the method “heads and channels” removes whole ones"
        )
    return f"{capital(form.name)}: {form.words}" if form.words else ""


def form_rows(stored: StoredBytes) -> list[BarRow]:
    """One bar a form; a form that the mask does not allow says so."""
    dense, even = dense_of(stored), dict(stored.break_even)
    rows = []
    for form in stored.forms:
        share = form.bytes / dense if dense else math.nan
        starts = percent(even[form.name]) if even.get(form.name) else "–"
        if not form.valid:
            note = "no row is all zeros" if form.name == ROWS else "not for this mask"
            rows.append(BarRow(form.name, note=note, cells=["–", "–", starts], title=form.words))
            continue
        series = DENSE if form.name == "dense" else mark_of(stored.setting.method).series
        cells = [format_bytes(form.bytes), f"{number(share, 2)} ×", starts]
        rows.append(BarRow(form.name, [Bar(float(form.bytes), series)], cells, title=form.words))
    return rows


def stored_table(every: Sequence[StoredBytes]) -> Table:
    """Every form of every scope."""
    head = ["of", "setting", "form", "bytes", "size", "possible", "weights", "kept", "saves from", "what is counted"]
    rows = [
        [
            s.scope,
            s.setting.label,
            f.name,
            f.bytes,
            format_bytes(f.bytes),
            "yes" if f.valid else "no",
            s.weights,
            s.kept,
            dict(s.break_even).get(f.name),
            f.words,
        ]
        for s in every
        for f in s.forms
    ]
    return Table("stored_bytes", head, rows)
