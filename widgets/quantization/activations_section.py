"""Activation quantization: ranges of inputs layer by layer, their outliers, and the error beside weights alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.quantization_methods import ActivationChoice, ActivationRanges
from widgets.bar_table import Bar, BarRow, BarTable, Column, Line, Series
from widgets.choice import Choice
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.format import NOTHING, format_number, typeset_share
from widgets.quantization.activations_plot import RangePlot, TokenMaxPlot
from widgets.quantization.state import Matrix, QuantizationState
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.verdict import Verdict

ALONE: Series = 2
BOTH: Series = 3


class ActivationsSection(Section[QuantizationState]):
    """Ranges, positions, outlier channels, and all ways to quantize inputs by their error."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._verdict = Verdict()
        self._ranges = RangePlot()
        self._range_words = Words(css_class="lab-caption")
        self._choice = Choice(desk, "Matrix")
        self._tokens = TokenMaxPlot()
        self._token_words = Words(css_class="lab-caption")
        self._bars = BarTable(label="Output error of each way to quantize inputs", first="scale", picture="activations")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all choices")
        self.widget = section(
            heading(
                "Inputs in fewer bits too",
                "Weights wait in memory; inputs are new in every call. One scale a token follows them, one for all, or "
                "one fixed on calibration text, must fit the largest.",
            ),
            self._verdict,
            self._ranges,
            self._range_words,
            self._choice.widget,
            self._tokens,
            self._token_words,
            self._bars,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        return bool(state.activations)

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        del upto
        found = state.activations
        if not found:
            return
        shown = found[self._choice.show([Matrix(f.layer, f.projection).title for f in found])]
        self._verdict.show(*activation_verdict(shown))
        self._ranges.show(found)
        self._range_words.say(("p", _range_words(shown)))
        self._tokens.show(shown)
        self._token_words.say(("p", _token_words(shown)))
        line = Line(shown.weights_only_error, "weights alone") if math.isfinite(shown.weights_only_error) else None
        self._bars.show(
            [_row(c) for c in shown.choices],
            (Column("inputs alone", ALONE), Column("with weights", BOTH)),
            line=line,
            empty="No way was measured.",
        )
        self._caption.say(("p", _caption(shown)))
        if not live:
            self._table.show(choice_table(found))

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        return (choice_table(state.activations), range_table(state.activations))


def activation_verdict(found: ActivationRanges) -> tuple[str, str, str]:
    """Tone, heading and note: which way loses least, beside the weights' own error."""
    known = [c for c in found.choices if math.isfinite(c.output_error)]
    if not known:
        return "none", "No way to quantize the inputs was measured", ""
    best, worst = min(known, key=lambda c: c.output_error), max(known, key=lambda c: c.output_error)
    text = f"{found.bits}-bit inputs lose least {_how(best.mode)}: {typeset_share(best.output_error)}"
    note = f"Most {_how(worst.mode)}: {typeset_share(worst.output_error)}."
    weights = found.weights_only_error
    if not math.isfinite(weights) or weights <= 0:
        return "none", text, note
    small = best.output_error <= 0.5 * weights
    note += f" The quantized weights alone lose {typeset_share(weights)}."
    return "good" if small else "even" if best.output_error <= weights else "bad", text, note


def _how(mode: str) -> str:
    return f"with ‘{mode}’"


def _range_words(found: ActivationRanges) -> str:
    channels = ", ".join(f"{f.channel} ({format_number(f.max_abs)})" for f in found.outliers[:5])
    told = sorted(p for p, _ in found.percentiles)
    thick = f" Thick: from the {told[0]:g}th to the {told[-1]:g}th percentile." if len(told) > 1 else ""
    return f"MEASURED on calibration text. Thin: all inputs.{thick} Largest channels: {channels or NOTHING}."


def _token_words(found: ActivationRanges) -> str:
    values = sorted(float(v) for v in found.token_max.numpy().reshape(-1))
    if not values or values[len(values) // 2] <= 0:
        return ""
    times = values[-1] / values[len(values) // 2]
    return (
        f"The largest position reaches {times:.1f} times the median one. A scale for the whole tensor follows that "
        "position alone; a scale a token follows each."
    )


def _row(choice: ActivationChoice) -> BarRow:
    errors = ((choice.output_error, ALONE), (choice.both_error, BOTH))
    return BarRow(
        label=choice.mode,
        bars=[Bar(v, s) for v, s in errors if math.isfinite(v)],
        cells=[
            *(typeset_share(v) if math.isfinite(v) else NOTHING for v, _ in errors),
        ],
        title=(f"scale {format_number(choice.scale)}" if math.isfinite(choice.scale) else "the scale differs by call")
        + (f"; {typeset_share(choice.clipped)} of inputs clipped" if choice.clipped else ""),
    )


def _caption(found: ActivationRanges) -> str:
    return (
        f"MEASURED on held-out text, SIMULATED kernels: relative error of the layer’s output, {found.bits}-bit "
        f"inputs.{_clipped(found)}"
    )


def _clipped(found: ActivationRanges) -> str:
    """What fixed scales cut off."""
    cut = [f"{c.mode}: {typeset_share(c.clipped)}" for c in found.choices if c.clipped > 0]
    return f" Inputs beyond the range of a fixed scale are clipped ({', '.join(cut)})." if cut else ""


def choice_table(found: Sequence[ActivationRanges]) -> Table:
    """Every way on every matrix."""
    head = ["matrix", "bits", "way", "scale", "clipped", "input error", "output error", "with weights", "weights alone"]
    rows: list[list[Any]] = [
        [
            Matrix(f.layer, f.projection).title,
            f.bits,
            c.mode,
            _number(c.scale),
            _number(c.clipped),
            _number(c.input_error),
            _number(c.output_error),
            _number(c.both_error),
            _number(f.weights_only_error),
        ]
        for f in found
        for c in f.choices
    ]
    return Table("activations", head, rows)


def range_table(found: Sequence[ActivationRanges]) -> Table:
    """Ranges and percentiles of every matrix, and its largest channels."""
    rows: list[list[Any]] = []
    for f in found:
        name = Matrix(f.layer, f.projection).title
        rows += [[name, "least", _number(f.low)], [name, "largest", _number(f.high)]]
        rows += [[name, f"{p:g} % stay below", _number(v)] for p, v in f.percentiles]
        rows += [[name, f"channel {o.channel}, largest |x|", _number(o.max_abs)] for o in f.outliers]
    return Table("activation_ranges", ["matrix", "what", "value"], rows)


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
