"""Packed for real: int8 and int4 kernels run the whole model beside the dense one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from lab.events import RunFinished
from lab.events.quantization_words import PackedFigures, PackedToken
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import NOTHING, format_bytes, format_ms, format_number, split_bytes
from widgets.quantization.packed_plot import PackedPlot
from widgets.quantization.state import DENSE, QuantizationState
from widgets.section import Section, heading, section, sections
from widgets.text import Words
from widgets.token_text import plain_text
from widgets.verdict import Verdict

EVEN = 0.02
"""A ratio nearer to 1 than this is called even."""
_MIB = 1024 * 1024


class PackedSection(Section[QuantizationState]):
    """Verdict, race, speed, sizes, words; every figure is MEASURED in this run."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._figures = FigureRow()
        self._plot = PackedPlot()
        self._race_words = Words(css_class="lab-caption")
        self._steps = DataTable(summary="Table of all steps")
        self._decode = BarTable(label="Decode speed of each variant", first="variant", picture="decode speed")
        self._prefill = BarTable(label="Prefill time of each variant", first="variant", picture="prefill")
        self._sizes = BarTable(label="Sizes of each variant", first="variant", picture="sizes")
        self._size_words = Words(css_class="lab-caption")
        self._equal = BarTable(label="Greedy words equal to the dense ones", first="variant", picture="equal words")
        self._differences = Words(css_class="lab-caption")
        self._text = Words(css_class="lab-result")
        self._table = DataTable(summary="Table of all figures")
        self.widget = sections(
            section(self._verdict, self._figures, self._plot, self._race_words, self._steps),
            section(
                heading("How fast?", "Decode: one token at a time. Prefill: the whole prompt in one pass."),
                self._decode,
                self._prefill,
                self._table,
            ),
            section(
                heading("How large?", "On disk: the files written and loaded again. In memory: the weights alone."),
                self._sizes,
                self._size_words,
            ),
            section(heading("The same words?"), self._equal, self._differences, self._text),
        )

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        rows = {name: state.packed[name][: upto + 1] for name in _order(state) if name in state.packed}
        labels = {name: variant.label for name, variant in state.variants.items()}
        tone, text, notes = packed_verdict(state, live=live)
        self._verdict.show(tone, text, *notes)
        self._figures.show(_headline(state))
        planned = int(state.param("max_new_tokens", 1)) - 1 if state.end is None else 1
        self._plot.show(rows, labels, planned)
        self._race_words.say(("p", _race_words(state, rows, live=live)))
        self._decode.show(
            _decode_rows(state, rows),
            (Column("tokens/s"), Column("a step"), Column("× dense")),
            line=_dense_line(state, rows),
            empty="The first token is on its way." if live else "Nothing was measured.",
        )
        self._prefill.show(_prefill_rows(state), (Column("prefill"), Column("× dense")))
        self._sizes.show(
            _size_rows(state),
            (Column("in memory", 1), Column("on disk", 3)),
            empty="Sizes follow at the end of the run." if live else "Nothing was measured.",
        )
        self._size_words.say(("p", _size_words(state)))
        self._equal.show(_equal_rows(state, rows), (Column("equal"),))
        self._differences.say(*(("p", words) for words in _difference_words(state)))
        self._text.say(*_text(state, upto))
        if not live:
            self._steps.show(step_table(state))
            self._table.show(figure_table(state))

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        return (figure_table(state), step_table(state))


def _order(state: QuantizationState) -> list[str]:
    """Dense first, then as they were told."""
    names = [*state.variants, *(n for n in state.packed if n not in state.variants)]
    return sorted(names, key=lambda name: name != DENSE)


def _label(state: QuantizationState, name: str) -> str:
    return state.variants[name].label if name in state.variants else name


def step_ms(row: Sequence[PackedToken]) -> float | None:
    """Median milliseconds of a decode step so far."""
    times = [t.ms for t in row if t.index > 0]
    return median(times) if times else None


def best(state: QuantizationState) -> PackedFigures | None:
    """The fastest packed variant."""
    packed = [f for f in state.packed_figures.values() if f.variant != DENSE and math.isfinite(f.speedup)]
    return max(packed, key=lambda f: f.speedup, default=None)


def packed_verdict(state: QuantizationState, *, live: bool) -> tuple[str, str, list[str]]:
    """Tone, heading and notes: whether packing is faster, and whether the words stay."""
    found = best(state)
    if found is None:
        if live:
            return "pending", "Is it faster for real? All variants take turns, token by token.", []
        return "none", "The run ended before it was measured.", []
    label = _label(state, found.variant)
    if found.speedup > 1 + EVEN:
        tone, text = "good", f"{label}: {found.speedup:.2f} times as fast as dense"
    elif found.speedup < 1 - EVEN:
        tone, text = "bad", f"No packed kernel is faster here: {label}, the best, reaches {found.speedup:.2f} × dense"
    else:
        tone, text = "even", f"{label} is as fast as dense here"
    same = "All its words are the dense model's." if found.equal == found.of else f"Words: {_equal_words(found)}."
    beside = state.end.ran_beside if isinstance(state.end, RunFinished) else 0
    load = f"Under load: {beside} other run{'s' if beside > 1 else ''} beside it." if beside else ""
    return "pending" if live else tone, text, [same, load]


def _equal_words(found: PackedFigures) -> str:
    words = f"{found.equal:,} of {found.of:,} equal"
    return f"{words}. {plain_text(found.difference).rstrip('.')}" if found.difference else words


def _headline(state: QuantizationState) -> list[dict[str, Any]]:
    found, dense = best(state), state.packed_figures.get(DENSE)
    disk, disk_unit = split_bytes(found.disk_bytes if found and found.disk_bytes else None)
    held, held_unit = split_bytes(found.resident_bytes if found else None)
    who = _label(state, found.variant) if found else ""
    return [
        {
            "id": "packed_rate",
            "value": format_number(found.tokens_per_s) if found else "",
            "unit": "tokens/s",
            "badge": "MEASURED",
            "note": f"{who}; dense: {format_number(dense.tokens_per_s)}" if found and dense else who,
            "title": "1000 divided by the median step. Variants take turns in the same process.",
        },
        {
            "id": "packed_disk",
            "value": "none" if found and not found.disk_bytes else disk,
            "unit": f"{disk_unit} on disk".strip() if not found or found.disk_bytes else "written",
            "badge": "MEASURED",
            "note": _reloaded(found),
            "title": "Safetensors with codes and scales, written by this run and loaded again.",
        },
        {
            "id": "packed_resident",
            "value": held,
            "unit": f"{held_unit} in memory".strip(),
            "badge": "MEASURED",
            "note": f"dense: {format_bytes(dense.resident_bytes)}" if dense else "",
            "title": "Bytes of the weights with this variant alone, those that stay dense included.",
        },
    ]


def _reloaded(found: PackedFigures | None) -> str:
    if found is None or found.reloaded is None:
        return ""
    return "loaded again, equal bit for bit" if found.reloaded else "loaded again, and different"


def _race_words(state: QuantizationState, rows: Mapping[str, Sequence[PackedToken]], *, live: bool) -> str:
    if not rows:
        return "The model is being packed." if live else "Nothing was measured."
    words = "MEASURED: all variants take turns, token by token, in one process. Lines are sums, slow steps and all."
    return words + (" The figures below take the median step." if state.packed_figures else "")


def _decode_rows(state: QuantizationState, rows: Mapping[str, Sequence[PackedToken]]) -> list[BarRow]:
    dense_ms = step_ms(rows.get(DENSE, ()))
    made = []
    for name in _order(state):
        found = state.packed_figures.get(name)
        ms = found.decode_ms if found else step_ms(rows.get(name, ()))
        if ms is None or ms <= 0:
            made.append(
                BarRow(label=_label(state, name), note="not measured yet" if state.end is None else "not measured")
            )
            continue
        times = found.speedup if found else dense_ms / ms if dense_ms else math.nan
        made.append(
            BarRow(
                label=_label(state, name),
                bars=[Bar(1000 / ms, 1 if name == DENSE else 2)],
                cells=[format_number(1000 / ms), format_ms(ms), f"{times:.2f}" if math.isfinite(times) else NOTHING],
                title=f"median of {found.steps:,} steps" if found else "median of the steps so far",
            )
        )
    return made


def _dense_line(state: QuantizationState, rows: Mapping[str, Sequence[PackedToken]]) -> Line | None:
    found = state.packed_figures.get(DENSE)
    ms = found.decode_ms if found else step_ms(rows.get(DENSE, ()))
    return Line(1000 / ms, "dense") if ms else None


def _prefill_rows(state: QuantizationState) -> list[BarRow]:
    return [
        BarRow(
            label=_label(state, f.variant),
            bars=[Bar(f.prefill_ms, 1 if f.variant == DENSE else 2)],
            cells=[
                format_ms(f.prefill_ms),
                f"{f.prefill_speedup:.2f}" if math.isfinite(f.prefill_speedup) else NOTHING,
            ],
            title=f"prefill of {f.prompt_tokens:,} tokens",
        )
        for f in _figures(state)
    ]


def _figures(state: QuantizationState) -> list[PackedFigures]:
    return [state.packed_figures[name] for name in _order(state) if name in state.packed_figures]


def _size_rows(state: QuantizationState) -> list[BarRow]:
    return [
        BarRow(
            label=_label(state, f.variant),
            bars=[Bar(f.resident_bytes / _MIB, 1), *([Bar(f.disk_bytes / _MIB, 3)] if f.disk_bytes else [])],
            cells=[format_bytes(f.resident_bytes), format_bytes(f.disk_bytes) if f.disk_bytes else "not written"],
        )
        for f in _figures(state)
    ]


def _size_words(state: QuantizationState) -> str:
    written = [f for f in _figures(state) if f.reloaded is not None]
    if not written:
        return ""
    bad = [_label(state, f.variant) for f in written if not f.reloaded]
    if bad:
        return f"MEASURED. Loaded again and different: {', '.join(bad)}."
    return (
        "MEASURED. Files hold codes and scales as they are defined; kernels pack them when they are loaded. "
        "All files loaded again, equal bit for bit."
    )


def _equal_rows(state: QuantizationState, rows: Mapping[str, Sequence[PackedToken]]) -> list[BarRow]:
    made = []
    for name in _order(state):
        if name == DENSE:
            continue
        found, row = state.packed_figures.get(name), rows.get(name, ())
        equal = found.equal if found else next((i for i, t in enumerate(row) if not t.matched), len(row))
        of = found.of if found else len(row)
        made.append(
            BarRow(
                label=_label(state, name),
                bars=[Bar(equal / of, 3)] if of else [],
                cells=[f"{equal:,} of {of:,}" if of else NOTHING],
                title=found.difference if found else "",
            )
        )
    return made


def _difference_words(state: QuantizationState) -> list[str]:
    if not state.packed_figures:
        return []
    words = ["MEASURED: greedy tokens before the first difference. After it the rows have different texts."]
    return words + [
        f"{_label(state, f.variant)}: {plain_text(f.difference).rstrip('.')}." for f in _figures(state) if f.difference
    ]


def _text(state: QuantizationState, upto: int) -> list[tuple[str, str]]:
    """The dense text, and the others' where they differ."""
    lines: list[tuple[str, str]] = []
    dense = [t.token_id for t in state.packed.get(DENSE, [])[: upto + 1]]
    for name in _order(state):
        row = state.packed.get(name, [])[: upto + 1]
        if row and (name == DENSE or [t.token_id for t in row] != dense[: len(row)]):
            text = plain_text("".join(t.text for t in row if not t.is_end).strip(" "))
            lines.append(("p", f"{_label(state, name)}: {text}"))
    return [("p", "As text"), *lines] if lines else []


def _number(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def figure_table(state: QuantizationState) -> Table:
    """All figures, a row a variant."""
    head = ["variant", "tokens/s", "step ms", "× dense", "prefill ms", "× dense", "prompt tokens", "resident bytes"]
    head += ["disk bytes", "reloaded equal", "words equal", "of", "first difference"]
    rows = [
        [
            _label(state, f.variant),
            _number(f.tokens_per_s),
            _number(f.decode_ms),
            _number(f.speedup),
            _number(f.prefill_ms),
            _number(f.prefill_speedup),
            f.prompt_tokens,
            f.resident_bytes,
            f.disk_bytes or None,
            {True: "yes", False: "no", None: None}[f.reloaded],
            f.equal,
            f.of,
            f.difference,
        ]
        for f in _figures(state)
    ]
    return Table("packed", head, rows)


def step_table(state: QuantizationState) -> Table:
    """Every step of every variant."""
    rows = [
        [_label(state, name), t.index + 1, t.token_id, t.text, _number(t.ms), "yes" if t.matched else "no"]
        for name in _order(state)
        for t in state.packed.get(name, [])
    ]
    return Table("packed_steps", ["variant", "new token", "id", "token", "ms", "dense token"], rows)
