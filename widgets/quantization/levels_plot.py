"""The levels of a code against the weights that they stand for."""

from __future__ import annotations

from lab.events.quantization_methods import LevelsShown
from widgets.plot import Plot, add_hover, new_figure, paint, source
from widgets.quantization.sentences import shares_of


class LevelsPlot(Plot):
    """Weights as a histogram, and each level as a pin as tall as the share of weights that it takes."""

    def __init__(self) -> None:
        fig = new_figure(x_label="weight / largest |w| of its group", y_label="share of the weights, %", height=190)
        bars = source("bars", "left", "right", "top")
        pins = source("pins", "x", "share", "index")
        even = source("even", "x", "share")
        drawn = fig.quad(left="left", right="right", top="top", bottom=0, source=bars, line_color=None, fill_alpha=0.35)
        paint(drawn.glyph, fill_color="--lab-muted")
        sticks = fig.segment("x", 0, "x", "share", source=pins, line_width=2)
        paint(sticks.glyph, line_color="--lab-series-1")
        heads = fig.scatter("x", "share", source=pins, size=8, line_color=None)
        paint(heads.glyph, fill_color="--lab-series-1")
        others = fig.scatter("x", "share", source=even, size=7, fill_alpha=0, line_width=1.75)
        paint(others.glyph, line_color="--lab-series-2")
        feet = fig.scatter("x", 0, source=pins, marker="dash", angle=1.5708, size=9, line_width=2)
        paint(feet.glyph, line_color="--lab-text")
        add_hover(
            fig, [heads], [("level", "@index"), ("at", "@x{0.0000} × largest |w|"), ("of the weights", "@share{0.0} %")]
        )
        super().__init__(fig, "Levels and weights")

    def show(self, shown: LevelsShown) -> None:
        """Draw one set of levels."""
        counts = shown.counts.numpy()
        weights = max(1, int(counts.sum()))
        width = (shown.high - shown.low) / max(1, len(counts))
        # A bin holds fewer weights than a level the narrower it is: scaled to the mean step of the levels they compare.
        step = (shown.levels[-1] - shown.levels[0]) / max(1, len(shown.levels) - 1) if shown.levels else width
        tops = [float(c) / weights * 100 * step / width for c in counts]
        shares, even = ([100 * share for share in shares_of(used)] for used in (shown.used, shown.even))
        ends = (shown.levels[0], shown.levels[-1]) if shown.levels else (-1.0, 1.0)
        apart = (ends[1] - ends[0]) / max(1, len(even) - 1)
        top = 1.1 * max([*tops, *shares, *even, 1e-9])
        self.update(
            {
                "bars": {
                    "left": [shown.low + i * width for i in range(len(tops))],
                    "right": [shown.low + (i + 1) * width for i in range(len(tops))],
                    "top": [min(t, top) for t in tops],
                },
                "pins": {"x": list(shown.levels), "share": shares, "index": [i + 1 for i in range(len(shares))]},
                "even": {"x": [ends[0] + i * apart for i in range(len(even))], "share": even},
            },
            {"x_range": {"start": -1.06, "end": 1.06}, "y_range": {"start": 0, "end": top}},
            f"{shown.label}: {len(shown.levels)} levels, the busiest with {max(shares, default=0):.1f} %",
        )
