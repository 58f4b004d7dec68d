"""Do zeros save time? Dense, zeros in place, rows removed and 2:4, step by step in one run, and what each loses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from lab.events import RunFinished
from lab.events.pruning import TimedFigures, TimedToken
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line, Series
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import NOTHING, format_bytes, format_ms, format_number, split_bytes
from widgets.numbers import capital, percent
from widgets.pruning.losses import judged, loss_cell, loss_words, saving_tone, variant_loss
from widgets.pruning.method_marks import DENSE as NEUTRAL
from widgets.pruning.method_marks import mark_of
from widgets.pruning.savings_tables import figure_table, label_of, order, step_table
from widgets.pruning.state import DENSE, PruningState
from widgets.section import Section, heading, section, sections
from widgets.text import Words
from widgets.token_text import visible
from widgets.verdict import Verdict

LOSS = Column("KL, nats")
EVEN = 0.05
"""A ratio nearer to 1 than this is called even."""


class SavingsSection(Section[PruningState]):
    """Verdict, figures, decode and prefill, memory, and why."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._figures = FigureRow()
        self._decode = BarTable(label="Time of a decode step", first="variant", picture="decode step")
        self._prefill = BarTable(label="Time of the prefill", first="variant", picture="prefill")
        self._why = Words(css_class="lab-caption")
        self._memory = BarTable(label="Weights in memory", first="variant", picture="memory")
        self._memory_words = Words(css_class="lab-caption")
        self._text = Words(css_class="lab-result")
        self._table = DataTable(summary="Table of all figures")
        self._steps = DataTable(summary="Table of all steps")
        self.widget = sections(
            section(self._verdict, self._figures),
            section(
                heading(
                    "Time", "A decode step is one token, after the prompt; the prefill is the whole prompt in one pass."
                ),
                self._decode,
                self._prefill,
                self._why,
                self._table,
                self._steps,
            ),
            section(
                heading("Memory", "The bytes of the weights as they stand in memory."),
                self._memory,
                self._memory_words,
                self._text,
            ),
        )

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        rows = {name: state.timed[name][: upto + 1] for name in order(state) if name in state.timed}
        self._verdict.show(*savings_verdict(state, live=live))
        self._figures.show(_headline(state))
        dense = step_ms(rows.get(DENSE, ()), state.timed_figures.get(DENSE))
        line = Line(dense, "dense") if dense else None
        empty = "The first token is on its way." if live else "Nothing was measured."
        self._decode.show(
            _decode_rows(state, rows),
            (Column("a step"), Column("tokens/s"), Column("× dense"), LOSS),
            line=line,
            empty=empty,
        )
        base = state.timed_figures.get(DENSE)
        prefill = Line(base.prefill_ms, "dense") if base and math.isfinite(base.prefill_ms) else None
        self._prefill.show(_prefill_rows(state), (Column("prefill"), Column("× dense"), LOSS), line=prefill)
        self._why.say(*(("p", words) for words in why_words(state)))
        self._memory.show(
            _memory_rows(state),
            (Column("in memory"), Column("parameters"), LOSS),
            line=Line(float(base.resident_bytes), "dense") if base and base.resident_bytes else None,
            empty="Sizes follow at the end of the run." if live else "Nothing was measured.",
        )
        shown = any(f.resident_bytes for f in state.timed_figures.values())
        self._memory_words.say(
            *(
                [("p", "MEASURED: what the tensors take. Zeros in place take as much as what they replace.")]
                if shown
                else []
            )
        )
        self._text.say(*_text(state, upto))
        if not live:
            self._table.show(figure_table(state))
            self._steps.show(step_table(state))

    def tables(self, state: PruningState) -> Sequence[Table]:
        return (figure_table(state), step_table(state))


def here(figures: TimedFigures) -> bool:
    """Whether it could be measured on this machine."""
    return math.isfinite(figures.decode_ms)


def step_ms(row: Sequence[TimedToken], figures: TimedFigures | None = None) -> float | None:
    """Median milliseconds of a decode step: as the run counted it, else so far."""
    if figures is not None and here(figures):
        return figures.decode_ms
    times = [t.ms for t in row if t.index > 0 and math.isfinite(t.ms)]
    return median(times) if times else None


def _others(state: PruningState) -> list[TimedFigures]:
    return [f for f in state.timed_figures.values() if f.variant != DENSE and math.isfinite(f.speedup)]


def _series(state: PruningState, name: str) -> Series:
    """The colour of the method that made a variant."""
    if name == DENSE:
        return NEUTRAL
    variant, setting = state.variants.get(name), state.setting
    removed = variant is not None and variant.truth != "simulated"
    return mark_of("rows" if removed or setting is None else setting.method).series


def savings_verdict(state: PruningState, *, live: bool) -> tuple[str, ...]:
    """Tone, heading and notes: what really runs faster, and what is lost for it."""
    others = _others(state)
    if not others:
        if live:
            return "pending", "Do zeros save time? All variants take turns, token by token.", ""
        return "none", "The run ended before it was measured.", ""
    best = max(others, key=lambda f: f.speedup)
    even = [label_of(state, f.variant) for f in others if abs(f.speedup - 1) <= EVEN]
    note = f"No gain: {', '.join(even)}." if even else ""
    beside = state.end.ran_beside if isinstance(state.end, RunFinished) else 0
    note += f" Under load: {beside} other run{'s' if beside > 1 else ''} beside it." if beside else ""
    if best.speedup > 1 + EVEN:
        text = f"{capital(label_of(state, best.variant))}: {best.speedup:.2f} times as fast as dense"
        lost = variant_loss(state, best.variant)
        if live:
            return "pending", text, note.strip()
        return saving_tone(lost), text, judged(lost), note.strip()
    return "pending" if live else "even", "Nothing here is faster than dense", note.strip()


def why_words(state: PruningState) -> list[str]:
    """Why a variant is faster, is not, or is not here."""
    told = [f for name in order(state) if (f := state.timed_figures.get(name)) and f.words]
    said = [f"{capital(label_of(state, f.variant))}{_why(f)}." for f in told if f.variant != DENSE]
    if not state.timed:
        return said
    first = next(iter(state.losses.values()), None)
    where = (
        f" KL(dense ‖ it): on {first.divergence.positions:,} positions of held-out text ({first.divergence.text_hash})."
        if first
        else " KL(dense ‖ it): not measured in this run."
    )
    return [f"MEASURED, variants in turns, token by token.{where}", *said]


def _why(figures: TimedFigures) -> str:
    """After a variant's name: ": why", or ", not here: why"."""
    return (": " if here(figures) else ", ") + figures.words.rstrip(".")


def _headline(state: PruningState) -> list[dict[str, Any]]:
    others = _others(state)
    zeros = next((f for f in others if _truth(state, f) == "simulated"), None)
    smaller = next((f for f in others if _truth(state, f) != "simulated"), None)
    dense = state.timed_figures.get(DENSE)
    size, unit = split_bytes(smaller.resident_bytes if smaller else None)
    saved = 1 - smaller.resident_bytes / dense.resident_bytes if smaller and dense and dense.resident_bytes else None

    def speed(name: str, found: TimedFigures | None, what: str) -> dict[str, Any]:
        times = ""
        if found and dense:
            times = f"{format_ms(found.decode_ms)} against {format_ms(dense.decode_ms)} a step; "
            times += loss_words(variant_loss(state, found.variant))
        value = f"{found.speedup:.2f}" if found else ""
        title = "Dense median step divided by this one's, in the same run."
        return {
            "id": name,
            "value": value,
            "unit": f"× as fast, {what}",
            "badge": "MEASURED",
            "note": times,
            "title": title,
        }

    return [
        speed("zeros", zeros, "zeros in place"),
        speed("smaller", smaller, "rows removed"),
        {
            "id": "resident",
            "value": size if smaller else "",
            "unit": f"{unit} of weights, rows removed".strip(),
            "badge": "MEASURED",
            "note": f"{percent(saved)} less than dense; {loss_words(variant_loss(state, smaller.variant))}"
            if smaller and saved is not None
            else "",
            "title": "Bytes of the smaller model's weights in memory.",
        },
    ]


def _truth(state: PruningState, figures: TimedFigures) -> str:
    variant = state.variants.get(figures.variant)
    return variant.truth if variant else "simulated"


def _loss(state: PruningState, name: str) -> str:
    return loss_cell(variant_loss(state, name), dense=name == DENSE)


def _decode_rows(state: PruningState, rows: dict[str, list[TimedToken]]) -> list[BarRow]:
    made = []
    for name in order(state):
        figures = state.timed_figures.get(name)
        ms = step_ms(rows.get(name, ()), figures)
        if ms is None:
            if figures is not None:
                why = figures.words.partition(":")[0]  # "not here" or "not run"
                made.append(BarRow(label_of(state, name), note=why, cells=[NOTHING] * 4, title=figures.words))
            continue
        ratio = f"{figures.speedup:.2f}" if figures and math.isfinite(figures.speedup) else NOTHING
        cells = [format_ms(ms), format_number(1000 / ms) if ms else NOTHING, "1" if name == DENSE else ratio]
        cells.append(_loss(state, name))
        made.append(
            BarRow(
                label_of(state, name), [Bar(ms, _series(state, name))], cells, title=figures.words if figures else ""
            )
        )
    return made


def _prefill_rows(state: PruningState) -> list[BarRow]:
    made = []
    for name in order(state):
        f = state.timed_figures.get(name)
        if f is None or not math.isfinite(f.prefill_ms):
            continue
        ratio = "1" if name == DENSE else f"{f.prefill_speedup:.2f}" if math.isfinite(f.prefill_speedup) else NOTHING
        made.append(
            BarRow(
                label_of(state, name),
                [Bar(f.prefill_ms, _series(state, name))],
                [format_ms(f.prefill_ms), ratio, _loss(state, name)],
                title=f"{f.prompt_tokens:,} tokens",
            )
        )
    return made


def _memory_rows(state: PruningState) -> list[BarRow]:
    found = [(name, f) for name in order(state) if (f := state.timed_figures.get(name)) and here(f)]
    return [
        BarRow(
            label_of(state, name),
            [Bar(float(f.resident_bytes), _series(state, name))],
            [format_bytes(f.resident_bytes), f"{f.parameters / 1e6:.1f} M", _loss(state, name)],
        )
        for name, f in found
    ]


def _text(state: PruningState, upto: int) -> list[tuple[str, str]]:
    lines = []
    for name in order(state):
        text = "".join(t.text for t in state.timed.get(name, [])[: upto + 1])
        if text:
            lines.append(("p", f"{label_of(state, name)}: {visible(text.strip(' '))}"))
    return [("p", "As text"), *lines] if lines else []
