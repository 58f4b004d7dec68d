"""What was added: how many numbers, how many bytes, on which matrices, and whether the base stayed as it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.lora import AdapterFacts
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_bytes, split_bytes, typeset_share
from widgets.lora.sentences import scale_words
from widgets.lora.state import ADAPTER, BASE, SERIES, LoraState, stopped_while_training
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words
from widgets.token_text import plain_text
from widgets.verdict import Verdict


class AdapterSection(Section[LoraState]):
    """Figures of the first adapter, all of them in bars, what does not fit or has no effect as a verdict."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._figures = FigureRow()
        self._about = Words(css_class="lab-answer")
        self._bars = BarTable(label="Parameters of the adapter and of the base", first="", picture="parameters")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of the adapters")
        self.widget = section(
            heading(
                "What was added",
                "Beside each adapted matrix W lie two thin ones, A and B. Their product, times a scale, is added to W.",
            ),
            self._verdict,
            self._figures,
            self._about,
            self._bars,
            self._caption,
            self._table,
        )

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto
        own = state.own
        show_if(own, self._figures, self._bars, self._caption, self._table)
        self._verdict.show(*adapter_verdict(state, live=live))
        if own is None:
            self._about.say()
            return
        self._figures.show(adapter_figures(own))
        self._about.say(*(("p", text) for text in about(list(state.adapters.values()))))
        self._bars.show(size_rows(state), (Column("parameters"), Column("share of the base")))
        self._caption.say(("p", "DERIVED: counted from shapes. A has rank × in numbers, B has out × rank."))
        if not live:
            self._table.show(adapter_table(state))

    def tables(self, state: LoraState) -> Sequence[Table]:
        return (adapter_table(state),)


def adapter_verdict(state: LoraState, *, live: bool) -> tuple[str, ...]:
    """Tone, heading and notes: whether the adapter fits, does anything, and left the base alone."""
    own = state.own
    if own is None:
        if live and state.end is None:
            return "pending", "The adapter is not there yet"
        if stopped_while_training(state):
            return "none", "Stopped while it was trained", "The best adapter so far is there: it can be kept, below."
        return "none", "The run ended without an adapter"
    for facts in state.adapters.values():
        if facts.matches:
            return "bad", f"{plain_text(facts.label)} does not fit this base", f"Because {facts.matches}."
        if facts.effectless:
            return "bad", f"{plain_text(facts.label)} has no effect", f"Because {facts.effectless}."
    done = state.trained
    if done is not None and not done.base_untouched:
        return "bad", "The base was changed", "Its weights have another hash than before the training."
    if done is not None:
        return "good", "The base is untouched", "Its weights have the same hash after the training as before."
    return "none", ""


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def adapter_figures(own: AdapterFacts) -> list[dict[str, Any]]:
    """Parameters beside the base's, beside the adapted matrices', and bytes."""
    value, unit = split_bytes(own.bytes)
    return [
        {
            "id": "parameters",
            "value": f"{own.parameters:,}",
            "unit": "in A and B",
            "badge": "DERIVED",
            "note": f"parameters: {typeset_share(_share(own.parameters, own.base_parameters))} of the base's "
            f"{own.base_parameters:,}",
            "title": "Of A and B of all adapted matrices together. Tied weights of the base count once.",
        },
        {
            "id": "matrix_share",
            "value": typeset_share(_share(own.parameters, own.matrix_parameters)),
            "unit": "of the adapted matrices",
            "badge": "DERIVED",
            "note": f"{own.matrix_parameters:,} weights in {own.modules:,} matrices",
            "title": "Parameters of A and B divided by those of the matrices that they change.",
        },
        {
            "id": "bytes",
            "value": value,
            "unit": f"{unit} in memory",
            "badge": "DERIVED",
            "note": "A and B in fp32" if own.bytes == 4 * own.parameters else "A and B",
            "title": "Of the factors alone. A file in PEFT's format is as large, and a page of JSON beside it.",
        },
    ]


def about(adapters: Sequence[AdapterFacts]) -> list[str]:
    """Each adapter in one sentence, its notes after it."""
    found = []
    for a in adapters:
        kind = "rsLoRA, " if a.rslora else ""
        scale = f"scale {scale_words(a.alpha, a.rank, a.rslora)} = {a.scale:.4g}".replace("-", "−")
        said = (
            f"{plain_text(a.label)} ({plain_text(a.source)}): {kind}rank {a.rank}, {scale}, on "
            f"{', '.join(a.targets) or 'no matrix'}."
        )
        made = f"Made for {plain_text(a.base)}." if a.base else "It does not say which base it was made for."
        found.append(" ".join([said, made, *(plain_text(note) for note in a.notes)]))
    return found


def size_rows(state: LoraState) -> list[BarRow]:
    """The base, the adapted matrices, the adapters: one scale."""
    own = state.own
    if own is None:
        return []
    rows = [
        ("base", own.base_parameters, SERIES[BASE]),
        ("matrices adapted", own.matrix_parameters, SERIES[BASE]),
        *((plain_text(a.label), a.parameters, SERIES[ADAPTER]) for a in state.adapters.values()),
    ]
    return [
        BarRow(name, [Bar(count, series)], [f"{count:,}", typeset_share(_share(count, own.base_parameters))])
        for name, count, series in rows
    ]


def adapter_table(state: LoraState) -> Table:
    """All adapters of the run."""
    head = ["adapter", "source", "rank", "alpha", "scale", "rsLoRA", "matrices", "parameters", "bytes", "made for"]
    head += ["does not fit", "no effect"]
    rows = [
        [
            a.name,
            a.source,
            a.rank,
            a.alpha,
            a.scale if math.isfinite(a.scale) else None,
            "yes" if a.rslora else "no",
            a.modules,
            a.parameters,
            format_bytes(a.bytes),
            a.base,
            a.matches,
            a.effectless,
        ]
        for a in state.adapters.values()
    ]
    return Table("adapters", head, rows)
