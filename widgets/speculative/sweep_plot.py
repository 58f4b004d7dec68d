"""Speed-up over the number of proposed tokens: measured, and as the formula predicts it."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.core.properties import field
from bokeh.models import FixedTicker
from bokeh.models.annotations import Span

from lab.events.speculative import SweepPoint
from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source


class SweepPlot(Plot):
    """Two curves around the line at 1, where speculation neither wins nor loses."""

    def __init__(self) -> None:
        fig = new_figure(x_label="tokens proposed a round, γ", y_label="× plain decoding", height=280)
        fig.xaxis.ticker = FixedTicker(ticks=list(range(1, 17)))
        measured, predicted = source("measured", "x", "y"), source("predicted", "x", "y")
        best, names = source("best", "x", "y"), source("names", "x", "y", "text", "align", "dy")
        one = Span(location=1, dimension="width", line_width=1.5, line_dash=[4, 4])
        paint(one, line_color="--lab-muted")
        fig.add_layout(one)
        line = fig.line("x", "y", source=measured, line_width=2)
        paint(line.glyph, line_color="--lab-series-2")
        dots = fig.scatter("x", "y", source=measured, size=6)
        paint(dots.glyph, fill_color="--lab-series-2", line_color="--lab-series-2")
        dashed = fig.line("x", "y", source=predicted, line_width=1.5, line_dash=[6, 4])
        paint(dashed.glyph, line_color="--lab-text")
        ring = fig.scatter("x", "y", source=best, size=11, line_width=2.5, fill_alpha=0)
        paint(ring.glyph, line_color="--lab-text")
        add_words(fig, names, text_align=field("align"), y_offset=field("dy"))
        add_hover(fig, [dots], [("γ", "@x"), ("measured", "@y{0.00} ×")])
        super().__init__(fig, "Speed-up over the number of proposed tokens")

    def show(self, points: Sequence[SweepPoint], planned: int) -> None:
        """Draw points; the axis reaches `planned` at least."""
        shown = sorted(points, key=lambda p: p.gamma)
        measured = [(p.gamma, p.figures.measured) for p in shown if p.figures.measured is not None]
        predicted = [(p.gamma, p.figures.predicted) for p in shown if p.figures.predicted is not None]
        top = max([y for _, y in (*measured, *predicted)], default=1.0)
        best = best_of(points)
        at = [(best.gamma, best.figures.measured or 0.0)] if best else []
        end = max(planned, shown[-1].gamma if shown else 1, 4)
        names = [_one(measured, end)]
        names += [(x, y + top * 0.05, f"best: γ = {x}, {y:.2f} ×", "center", -4) for x, y in at]
        self.update(
            {
                "measured": {"x": [x for x, _ in measured], "y": [y for _, y in measured]},
                "predicted": {"x": [x for x, _ in predicted], "y": [y for _, y in predicted]},
                "best": {"x": [x for x, _ in at], "y": [y for _, y in at]},
                "names": {k: [n[i] for n in names] for i, k in enumerate(("x", "y", "text", "align", "dy"))},
            },
            {
                "x_range": {"start": 0.5, "end": end + 0.5},
                "y_range": {"start": 0, "end": max(1.3, top * 1.22)},
            },
            "Measured speed-up: " + (", ".join(f"γ {x}: {y:.2f}" for x, y in measured) or "nothing yet"),
        )


def _one(measured: Sequence[tuple[int, float]], end: int) -> tuple[float, float, str, str, int]:
    """The name of the line at 1: at that end of it where the curve is farther off, on the other side of it."""
    first, last = (measured[0][1], measured[-1][1]) if measured else (1.0, 1.0)
    right = abs(last - 1) >= abs(first - 1)
    below = (last if right else first) >= 1
    x, align = (end + 0.5, "right") if right else (0.5, "left")
    return x, 1.0, "as fast as plain", align, 14 if below else -4


def best_of(points: Sequence[SweepPoint]) -> SweepPoint | None:
    """The point with the highest measured speed-up."""
    measured = [p for p in points if p.figures.measured is not None]
    return max(measured, key=lambda p: p.figures.measured or 0.0) if measured else None
