"""How often a guess is accepted, by its place in the round."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.models import FixedTicker

from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source

CROWDED = 10
"""With more places than this the words above the bars are numbers alone."""


class DepthPlot(Plot):
    """One bar a place: accepted of those judged there, with their number above."""

    def __init__(self) -> None:
        fig = new_figure(x_label="place in the round", y_label="accepted of judged", height=170)
        fig.xaxis.ticker = FixedTicker(ticks=list(range(1, 33)))
        bars = source("bars", "x", "top", "judged", "accepted")
        names = source("names", "x", "y", "text")
        drawn = fig.vbar("x", 0.62, "top", 0, source=bars, line_color=None)
        paint(drawn.glyph, fill_color="--lab-accepted")
        add_words(fig, names, text_align="center", y_offset=-3)
        add_hover(fig, [drawn], [("place", "@x"), ("judged", "@judged"), ("accepted", "@accepted")])
        super().__init__(fig, "Acceptance by place in the round")

    def show(self, by_depth: Sequence[tuple[int, int]], places: int) -> None:
        """Draw (judged, accepted) of each place; `places` are on the axis at least."""
        shown = [(i + 1, judged, accepted) for i, (judged, accepted) in enumerate(by_depth) if judged]
        end = max(places, len(by_depth), 1)
        crowded = end > CROWDED
        texts = [f"{a}" if crowded else f"{a} of {j}" for _, j, a in shown]
        self.update(
            {
                "bars": {
                    "x": [d for d, _, _ in shown],
                    "top": [a / j for _, j, a in shown],
                    "judged": [j for _, j, _ in shown],
                    "accepted": [a for _, _, a in shown],
                },
                "names": {"x": [d for d, _, _ in shown], "y": [a / j for _, j, a in shown], "text": texts},
            },
            {"x_range": {"start": 0.4, "end": end + 0.6}, "y_range": {"start": 0, "end": 1.16}},
            "Accepted by place in the round: "
            + (", ".join(f"place {d} {a} of {j}" for d, j, a in shown) or "nothing judged yet"),
        )
