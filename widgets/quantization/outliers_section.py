"""LLM.int8(): which input channels are too large for integers, and what taking them apart is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.quantization_methods import OutlierFeatures
from widgets.bar_table import Bar, BarRow, BarTable, Column, Series
from widgets.choice import Choice, Slider, float_slider
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.format import NOTHING, format_number, typeset_share
from widgets.quantization.outliers_plot import OWN, PLANTED, OutliersPlot, beyond_threshold
from widgets.quantization.state import Matrix, QuantizationState
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.verdict import Verdict

PURE: Series = 2
MIXED: Series = 3


class OutliersSection(Section[QuantizationState]):
    """Maxima of channels, a threshold of the page's own, the two parts of the product, their errors.

    Attributes:
        threshold: what the slider says; None follows the run's own.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.threshold: float | None = None
        self._choice = Choice(desk, "Matrix")
        self._verdict = Verdict()
        self._slider = Slider(desk, "threshold", _field(6.0), self._take)
        self._plot = OutliersPlot()
        self._legend = Words(css_class="lab-caption")
        self._parts = BarTable(label="The two parts of the product", first="part", picture="parts of the product")
        self._errors_words = Words(css_class="lab-heading")
        self._errors = BarTable(
            label="Output error in integers and with outliers apart", first="inputs", picture="errors"
        )
        self._honest = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of outlier channels")
        self.widget = section(
            heading(
                "Outlier features",
                "INT8 shares one scale among all inputs of a token. A channel that is far larger than the others "
                "leaves them few levels, so LLM.int8() computes such channels in floating point.",
            ),
            self._choice.widget,
            self._verdict,
            self._slider.widget,
            self._plot,
            self._legend,
            self._parts,
            self._errors_words,
            self._errors,
            self._honest,
            self._table,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        return bool(state.outliers)

    def reset(self) -> None:
        self.threshold = None

    def _take(self, threshold: float) -> None:
        self.threshold = float(threshold)

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        del upto
        matrices = list(dict.fromkeys(Matrix(o.layer, o.projection) for o in state.outliers))
        if not matrices:
            return
        shown = matrices[self._choice.show([m.title for m in matrices])]
        own = next((o for o in state.outliers if Matrix(o.layer, o.projection) == shown and not o.planted), None)
        planted = next((o for o in state.outliers if Matrix(o.layer, o.projection) == shown and o.planted), None)
        told = own or planted
        if told is None:
            return
        threshold = told.threshold if self.threshold is None else self.threshold
        self._slider.show(_field(told.threshold), threshold)
        self._verdict.show(*outlier_verdict(own, planted))
        self._plot.show(maxima(own), maxima(planted), threshold)
        items = [("this model’s inputs", OWN, False)] if own else []
        items += [(f"with channels made {planted.planted:g} × larger", PLANTED, True)] if planted else []
        self._legend.legend(items)
        self._legend.say(("p", _threshold_words(told, threshold)))
        self._parts.show(_parts(own, planted, threshold), (Column("channels"), Column("share")))
        self._errors_words.say(
            ("h2", "What it is worth"),
            ("p", f"Relative error of the layer’s output at this run’s threshold, {told.threshold:g}."),
        )
        self._errors.show(_errors(own, planted), (Column("all in INT8", PURE), Column("outliers apart", MIXED)))
        self._honest.say(*(("p", o.words) for o in (own, planted) if o and o.words))
        if not live:
            self._table.show(outlier_table(state.outliers))

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        return (outlier_table(state.outliers), maxima_table(state.outliers))

    def link(self) -> dict[str, Any]:
        return {"outlier_at": self.threshold}

    def restore(self, settings: dict[str, Any]) -> None:
        wanted = settings.get("outlier_at")
        if isinstance(wanted, int | float) and not isinstance(wanted, bool) and 0 <= wanted <= 100:
            self.threshold = float(wanted)


def _field(default: float) -> dict[str, Any]:
    return float_slider("Threshold", 0.0, 100.0, 0.5, default)


def maxima(found: OutlierFeatures | None) -> list[float]:
    """The largest |x| of each channel, the largest first."""
    return [float(v) for v in found.maxima.numpy().reshape(-1)] if found else []


def outlier_verdict(own: OutlierFeatures | None, planted: OutlierFeatures | None) -> tuple[str, str, str]:
    """Tone, heading and note: how many channels are apart, and what that buys."""
    told = own or planted
    if told is None:
        return "pending", "Outlier features", ""
    if own is None:
        return "none", f"{told.count:,} of {told.channels:,} planted channels reach {told.threshold:g}", ""
    text = (
        f"{own.count:,} of {own.channels:,} input channels reach {own.threshold:g} in this call"
        if own.threshold > 0
        else "Threshold 0: no channel is taken apart"
    )
    note = "The set is found anew in every call; it is no property of the weights."
    if planted is not None and not planted.count and planted.threshold > 0:
        note += f" Not even the planted channels reach {planted.threshold:g} here: lower the threshold and run again."
    elif planted is not None and planted.mixed_error > 0:
        times = planted.pure_error / planted.mixed_error
        note += f" With planted outliers, taking them apart makes the error {times:.1f} times smaller."
    return "none", text, note


def _threshold_words(told: OutlierFeatures, threshold: float) -> str:
    words = f"MEASURED on {told.positions:,} positions of held-out text."
    if threshold != told.threshold:
        words += (
            " The slider recounts channels from this picture; for errors at another threshold set ‘Outlier threshold’ "
            "and run."
        )
    return words


def _parts(own: OutlierFeatures | None, planted: OutlierFeatures | None, threshold: float) -> list[BarRow]:
    rows = []
    for found, who in ((own, "own inputs"), (planted, "planted")):
        if found is None:
            continue
        apart = beyond_threshold(maxima(found), threshold)
        for name, count, series in (("INT8", found.channels - apart, PURE), ("floating point", apart, MIXED)):
            share = count / found.channels if found.channels else math.nan
            rows.append(
                BarRow(
                    label=f"{who}: {name}", bars=[Bar(float(count), series)], cells=[f"{count:,}", typeset_share(share)]
                )
            )
    return rows


def _errors(own: OutlierFeatures | None, planted: OutlierFeatures | None) -> list[BarRow]:
    return [
        BarRow(
            label=who,
            bars=[Bar(v, s) for v, s in ((found.pure_error, PURE), (found.mixed_error, MIXED)) if math.isfinite(v)],
            cells=[typeset_share(v) if math.isfinite(v) else NOTHING for v in (found.pure_error, found.mixed_error)],
        )
        for found, who in ((own, "own inputs"), (planted, "planted outliers"))
        if found is not None
    ]


def outlier_table(found: Sequence[OutlierFeatures]) -> Table:
    """Outlier channels of every call, with the errors of the call."""
    head = ["matrix", "inputs", "threshold", "channel", "largest |x|", "outliers in all", "channels", "error in INT8"]
    head.append("error, outliers apart")
    rows: list[list[Any]] = []
    for o in found:
        first = [Matrix(o.layer, o.projection).title, f"planted × {o.planted:g}" if o.planted else "own", o.threshold]
        last = [o.count, o.channels, _number(o.pure_error), _number(o.mixed_error)]
        rows += [[*first, f.channel, _number(f.max_abs), *last] for f in o.outliers] or [[*first, None, None, *last]]
    return Table("outlier_channels", head, rows)


def maxima_table(found: Sequence[OutlierFeatures]) -> Table:
    """The curve of the model's own inputs."""
    rows = [
        [Matrix(o.layer, o.projection).title, rank + 1, _number(value)]
        for o in found
        if not o.planted
        for rank, value in enumerate(maxima(o))
    ]
    return Table("channel_maxima", ["matrix", "rank", "largest |x|"], rows)


def _number(value: float) -> float | None:
    return float(format_number(value, 6).replace(",", "")) if math.isfinite(value) else None
