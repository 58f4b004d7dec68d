"""AWQ: the search for scales that protect the channels that matter, and where the scales can be folded away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.quantization_methods import ScaleSearch
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.choice import Choice
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.format import format_number
from widgets.quantization.search_plot import SearchPlot
from widgets.quantization.state import QuantizationState
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.verdict import Verdict

MOST_SHOWN = 8


class ScaleSearchSection(Section[QuantizationState]):
    """Error over r, the protected channels, and what takes the inverse scales."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._choice = Choice(desk, "Matrices that share their inputs")
        self._verdict = Verdict()
        self._curve = SearchPlot(
            "r: scales are mean |x| to the power r", "Error over the exponent r", x_unit="r", one_is="round to nearest"
        )
        self._words = Words(css_class="lab-caption")
        self._channels = BarTable(label="Protected channels", first="channel", picture="protected channels")
        self._table = DataTable(summary="Table of the search")
        self.widget = section(
            heading(
                "AWQ’s search for scales",
                "Channels with large inputs are made larger before rounding and smaller after it, so that they are "
                "rounded more finely. How much, the search decides on calibration text.",
            ),
            self._choice.widget,
            self._verdict,
            self._curve,
            self._words,
            self._channels,
            self._table,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        return bool(state.scale_searches)

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        del upto
        searches = state.scale_searches
        if not searches:
            return
        search = searches[self._choice.show([title(s) for s in searches])]
        self._verdict.show(*search_verdict(search))
        self._curve.show(search.ratios, search.losses, nearest_loss(search), search.best)
        self._words.say(("p", _words(search)))
        self._channels.show(
            _channels(search),
            (Column("scale", 3), Column("mean |x|")) if _has_means(search) else (Column("scale", 3),),
            empty="No channel is protected: r = 0 is best, which is rounding to nearest.",
        )
        if not live:
            self._table.show(search_table(searches))

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        return (search_table(state.scale_searches), channel_table(state.scale_searches))

    def link(self) -> dict[str, Any]:
        return {"awq": self._choice.index or None}

    def restore(self, settings: dict[str, Any]) -> None:
        wanted = settings.get("awq")
        if isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted < 1000:
            self._choice.index = wanted


def title(search: ScaleSearch) -> str:
    """Which matrices a search is for."""
    return f"layer {search.layer} {', '.join(search.projections)}"


def gain(search: ScaleSearch) -> float:
    """The least error of the search divided by that of rounding to nearest."""
    tried = [loss for loss in search.losses if math.isfinite(loss)]
    nearest = nearest_loss(search)
    return min(tried) / nearest if tried and nearest > 0 else math.nan


def nearest_loss(search: ScaleSearch) -> float:
    """The error at r = 0; NaN where it was not tried."""
    tried = zip(search.ratios, search.losses, strict=False)
    return next((loss for r, loss in tried if abs(r) < 1e-9), math.nan)


def search_verdict(search: ScaleSearch) -> tuple[str, str, str]:
    """Tone, heading and note: what the scales buy, and where they go."""
    folded = (
        f"The inverse scales are folded into {search.folded_into}, so that running the model costs nothing more."
        if search.folded_into
        else f"Not folded: {search.refused or 'no reason told'}"
    )
    bought = gain(search)
    if not math.isfinite(bought):
        return "none", "Nothing was searched here" if not search.ratios else "Nothing was left to gain", folded
    if bought >= 1 - 1e-6:
        return "even", "No scaling helps here: r = 0 is best", folded
    return "good", f"r = {search.best:.2f} leaves {bought:.2f} of the squared output error", folded


def _words(search: ScaleSearch) -> str:
    judged = f" of {search.judged_by}" if search.judged_by else ""
    said = f"MEASURED on calibration text: error of the output{judged}. r = 0 scales nothing."
    said += " Smaller ranges of groups made the error less still, and were taken." if search.clipped else ""
    if search.protected:
        count = min(len(search.protected), MOST_SHOWN)
        said += f" The {count} of {search.channels:,} input channels with the largest scales:"
    return said


def _channels(search: ScaleSearch) -> list[BarRow]:
    return [
        BarRow(
            label=f"channel {p.channel}",
            bars=[Bar(p.scale, 3)],
            cells=[format_number(p.scale), *([format_number(p.mean_abs)] if _has_means(search) else [])],
        )
        for p in search.protected[:MOST_SHOWN]
    ]


def _has_means(search: ScaleSearch) -> bool:
    return any(math.isfinite(p.mean_abs) for p in search.protected)


def search_table(searches: Sequence[ScaleSearch]) -> Table:
    """Every value tried."""
    rows: list[list[Any]] = []
    for s in searches:
        rows += [
            [title(s), "r", round(r, 4), _number(loss), "yes" if r == s.best else ""]
            for r, loss in zip(s.ratios, s.losses, strict=False)
        ]
    return Table("scale_search", ["matrices", "searched", "value", "mean squared output error", "taken"], rows)


def channel_table(searches: Sequence[ScaleSearch]) -> Table:
    """The protected channels of every search."""
    rows = [
        [title(s), p.channel, _number(p.mean_abs), _number(p.scale), s.folded_into, s.refused]
        for s in searches
        for p in s.protected
    ]
    return Table("protected_channels", ["matrices", "channel", "mean |x|", "scale", "folded into", "refused"], rows)


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
