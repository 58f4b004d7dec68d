"""The inputs of a layer: their range layer by layer, and the largest of each position."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.models import BasicTicker, CustomJSTickFormatter
from bokeh.models.annotations import Span

from lab.events.quantization_methods import ActivationRanges
from widgets.format import format_number, typeset_number
from widgets.plot import Plot, add_hover, add_point_hover, add_words, new_figure, paint, source

RANGE = "--lab-series-1"
TOKENS = "--lab-series-5"


class RangePlot(Plot):
    """Thin bars from the least to the largest input, thick ones where nearly all of them lie."""

    def __init__(self) -> None:
        fig = new_figure(x_label="", y_label="input x", height=220)
        fig.xaxis[0].ticker = BasicTicker(desired_num_ticks=0)
        fig.xaxis[0].formatter = CustomJSTickFormatter(code="return '';")
        whole, most = source("whole", "x", "low", "high", "lows", "highs", "p"), source("most", "x", "low", "high")
        zero = Span(location=0, dimension="width", line_width=1)
        paint(zero, line_color="--lab-muted")
        fig.add_layout(zero)
        thin = fig.vbar(x="x", bottom="low", top="high", width=0.14, source=whole, fill_alpha=0.45, line_width=0)
        paint(thin.glyph, fill_color=RANGE, line_color=RANGE)
        thick = fig.vbar(x="x", bottom="low", top="high", width=0.5, source=most, fill_alpha=0.9, line_width=0)
        paint(thick.glyph, fill_color=RANGE, line_color=RANGE)
        add_words(fig, source("names", "x", "y", "text"), text_align="center", text_baseline="top", y_offset=6)
        add_words(fig, source("ends", "x", "y", "text", "dy"), text_align="center", y_offset="dy")
        add_point_hover(fig, [thin, thick], [("least", "@lows"), ("largest", "@highs"), ("99.9 % lie in", "@p")])
        super().__init__(fig, "Range of the inputs")

    def show(self, found: Sequence[ActivationRanges]) -> None:
        """Draw one bar a matrix."""
        xs = list(range(len(found)))
        inner = [inner_range(f) for f in found]
        low, high = min([f.low for f in found], default=-1.0), max([f.high for f in found], default=1.0)
        room = (high - low or 1.0) * 0.14
        words = [f"{typeset_number(a)} to {typeset_number(b)}" for a, b in inner]
        hover = {
            "lows": [typeset_number(f.low) for f in found],
            "highs": [typeset_number(f.high) for f in found],
            "p": words,
        }
        self.update(
            {
                "whole": {"x": xs, "low": [f.low for f in found], "high": [f.high for f in found], **hover},
                "most": {"x": xs, "low": [a for a, _ in inner], "high": [b for _, b in inner], **hover},
                "names": {
                    "x": xs,
                    "y": [low - room] * len(xs),
                    "text": [f"layer {f.layer} {f.projection}" for f in found],
                },
                "ends": {
                    "x": xs * 2,
                    "y": [*(f.high for f in found), *(f.low for f in found)],
                    "text": [*hover["highs"], *hover["lows"]],
                    "dy": [*([-4] * len(xs)), *([14] * len(xs))],
                },
            },
            {
                "x_range": {"start": -0.6, "end": max(len(found), 1) - 0.4},
                "y_range": {"start": low - 2.4 * room, "end": high + room},
            },
            "Range of the inputs: "
            + "; ".join(f"layer {f.layer} from {format_number(f.low)} to {format_number(f.high)}" for f in found),
        )


def inner_range(found: ActivationRanges) -> tuple[float, float]:
    """Between the lowest and the highest percentile that was told; the whole range where there are none."""
    told = sorted(found.percentiles)
    return (told[0][1], told[-1][1]) if len(told) > 1 else (found.low, found.high)


class TokenMaxPlot(Plot):
    """The largest |x| of each position: what a scale per token follows and one per tensor cannot."""

    def __init__(self) -> None:
        fig = new_figure(x_label="position in the held-out text", y_label="largest |x| of the position", height=180)
        bars = source("bars", "x", "y")
        made = fig.vbar(x="x", top="y", width=0.8, source=bars, line_width=0)
        paint(made.glyph, fill_color=TOKENS, line_color=TOKENS)
        add_hover(fig, [made], [("position", "@x"), ("largest |x|", "@y{0.00}")])
        super().__init__(fig, "The largest input of each position")

    def show(self, found: ActivationRanges) -> None:
        """Draw the positions that were told."""
        values = [float(v) for v in found.token_max.numpy().reshape(-1)]
        top = max(values, default=1.0) or 1.0
        at = values.index(max(values)) if values else 0
        self.update(
            {"bars": {"x": list(range(len(values))), "y": [float(f"{v:.4g}") for v in values]}},
            {"x_range": {"start": -1, "end": max(len(values), 2)}, "y_range": {"start": 0, "end": top * 1.08}},
            f"Largest input of each of {len(values)} positions; the largest, {format_number(top)}, at position {at}",
        )
