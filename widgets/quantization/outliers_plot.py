"""LLM.int8(): the largest input of each channel, sorted, and the threshold that takes some apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bokeh.models import CustomJSTickFormatter, LogTicker

from widgets.format import format_number
from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source

OWN, PLANTED = "--lab-series-1", "--lab-series-5"
_TICK = "return tick >= 1000 ? tick.toLocaleString('en-GB') : String(Number(tick.toPrecision(2)));"


class OutliersPlot(Plot):
    """One falling curve for the model's own inputs, one for the planted ones, a line at the threshold."""

    def __init__(self) -> None:
        fig = new_figure(
            x_label="input channels, the largest first, log scale",
            y_label="largest |x| of a channel, log scale",
            height=250,
            x_axis_type="log",
            y_axis_type="log",
        )
        fig.x_range.update(start=1, end=1000)
        fig.y_range.update(start=0.1)
        fig.xaxis[0].formatter = CustomJSTickFormatter(code=_TICK)
        fig.xaxis[0].ticker = LogTicker(num_minor_ticks=0)
        fig.yaxis[0].formatter = CustomJSTickFormatter(code=_TICK)
        fig.yaxis[0].ticker = LogTicker(desired_num_ticks=5, num_minor_ticks=0)
        beyond = source("beyond", "left", "right", "top", "bottom")
        wash = fig.quad("left", "right", "top", "bottom", source=beyond, fill_alpha=0.14, line_width=0)
        paint(wash.glyph, fill_color="--lab-series-2", line_color="--lab-series-2")
        lines = []
        for name, colour, dash in (("planted", PLANTED, [6, 3]), ("own", OWN, [])):
            made = fig.step("x", "y", source=source(name, "x", "y"), line_width=2, line_dash=dash, mode="after")
            paint(made.glyph, line_color=colour)
            lines.append(made)
        line = fig.line("x", "y", source=source("threshold", "x", "y"), line_width=1.5, line_dash=[4, 4])
        paint(line.glyph, line_color="--lab-text")
        add_words(fig, source("names", "x", "y", "text"), text_align="right", y_offset=-4)
        add_hover(fig, [lines[1]], [("channel number", "@x"), ("largest |x|", "@y{0.00}")])
        super().__init__(fig, "The largest input of each channel")

    def show(self, own: Sequence[float], planted: Sequence[float], threshold: float) -> None:
        """Draw the sorted maxima; what is not above 0 is not drawn on a logarithmic axis."""
        rows = {"own": _positive(own), "planted": _positive(planted)}
        values = [v for row in rows.values() for v in row]
        longest = max([2, *(len(r) for r in rows.values())])
        known = [*values, *([threshold] if threshold > 0 else [])]
        low, high = (min(known), max(known)) if known else (0.1, 10.0)
        room = (high / low) ** 0.1 if high > low > 0 else 1.5
        beyond = beyond_threshold(own, threshold)
        self.update(
            {
                **{name: {"x": list(range(1, len(row) + 1)), "y": row} for name, row in rows.items()},
                "threshold": {"x": [0.5, longest], "y": [threshold] * 2} if threshold > 0 else {"x": [], "y": []},
                "beyond": {
                    "left": [0.5],
                    "right": [beyond + 0.5],
                    "top": [high * room],
                    "bottom": [threshold],
                }
                if beyond and threshold > 0
                else {"left": [], "right": [], "top": [], "bottom": []},
                "names": {
                    "x": [longest] if threshold > 0 else [],
                    "y": [threshold] if threshold > 0 else [],
                    "text": [f"threshold {threshold:g}"] if threshold > 0 else [],
                },
            },
            {
                "x_range": {"start": 0.9, "end": longest * 1.05},
                "y_range": {"start": low / room, "end": high * room},
            },
            f"Largest inputs of {len(own)} channels: from {format_number(max(own, default=math.nan))} down to "
            f"{format_number(min(own, default=math.nan))}; {beyond} reach {threshold:g}",
        )


def _positive(values: Sequence[float]) -> list[float]:
    return [float(f"{v:.5g}") for v in values if v > 0 and math.isfinite(v)]


def beyond_threshold(maxima: Sequence[float], threshold: float) -> int:
    """How many channels reach a threshold; 0 takes none apart."""
    return sum(v >= threshold for v in maxima) if threshold > 0 else 0
