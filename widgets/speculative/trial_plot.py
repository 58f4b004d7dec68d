"""The exactness trial as it goes: the p-value of the chi-square test over the number of draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bokeh.models import CustomJSTickFormatter
from bokeh.models.annotations import Span

from lab.events.speculative import TrialPoint
from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source

RED = 1e-6
"""Below this p-value the pairs are not the model's."""
_LEAST = -40.0
_TICK = "return tick === 0 ? '1' : tick > -2.5 && tick === Math.round(tick) ? String(10 ** tick) : `1e${tick}`;"


class TrialPlot(Plot):
    """One line; below the dashed one the trial is red."""

    def __init__(self) -> None:
        fig = new_figure(x_label="pairs drawn", y_label="p of the chi-square test, log scale down to 1e-40", height=220)
        fig.yaxis.formatter = CustomJSTickFormatter(code=_TICK)
        points, names = source("points", "x", "y", "p"), source("names", "x", "y", "text")
        red = Span(location=math.log10(RED), dimension="width", line_width=1.5, line_dash=[4, 4])
        paint(red, line_color="--lab-rejected")
        fig.add_layout(red)
        line = fig.line("x", "y", source=points, line_width=2)
        paint(line.glyph, line_color="--lab-series-1")
        dots = fig.scatter("x", "y", source=points, size=5)
        paint(dots.glyph, fill_color="--lab-series-1", line_color="--lab-series-1")
        add_words(fig, names, text_align="right", y_offset=-4, x_offset=-2)
        add_hover(fig, [dots], [("pairs", "@x"), ("p", "@p{0.00e+0}")])
        super().__init__(fig, "The p-value of the trial")

    def show(self, points: Sequence[TrialPoint], planned: int) -> None:
        """Draw the trial so far; values below 1e-40 lie on the lower edge."""
        ys = [max(_LEAST, math.log10(p.p_value)) if p.p_value > 0 else _LEAST for p in points]
        end = max(planned, points[-1].runs if points else 1)
        lowest = min([-8.0, *(y * 1.1 for y in ys)])
        last = f"{points[-1].p_value:.2g} after {points[-1].runs:,} pairs" if points else "nothing drawn yet"
        self.update(
            {
                "points": {"x": [p.runs for p in points], "y": ys, "p": [p.p_value for p in points]},
                "names": {"x": [end], "y": [math.log10(RED)], "text": ["red below one in a million"]},
            },
            {"x_range": {"start": 0, "end": end * 1.02}, "y_range": {"start": lowest, "end": 0.4}},
            f"p-value of the chi-square test: {last}; red below 0.000001",
        )
