"""A search over one number: the error of each value tried, beside rounding to nearest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bokeh.models.annotations import Span

from widgets.format import format_number
from widgets.plot import Plot, add_hover, add_words, new_figure, paint, source


class SearchPlot(Plot):
    """A curve of errors, 1 where nothing is gained, the taken value in a ring."""

    def __init__(self, x_label: str, name: str, *, x_unit: str, one_is: str) -> None:
        fig = new_figure(x_label=x_label, y_label=f"mean squared output error, {one_is} = 1", height=230)
        curve, taken, names = (
            source("curve", "x", "y"),
            source("taken", "x", "y"),
            source("names", "x", "y", "text", "align", "dy"),
        )
        one = Span(location=1, dimension="width", line_width=1.5, line_dash=[4, 4])
        paint(one, line_color="--lab-muted")
        fig.add_layout(one)
        line = fig.line("x", "y", source=curve, line_width=2)
        paint(line.glyph, line_color="--lab-series-3")
        dots = fig.scatter("x", "y", source=curve, size=6)
        paint(dots.glyph, fill_color="--lab-series-3", line_color="--lab-series-3")
        ring = fig.scatter("x", "y", source=taken, size=12, line_width=2.5, fill_alpha=0)
        paint(ring.glyph, line_color="--lab-text")
        add_words(fig, names, text_align="align", y_offset="dy")
        add_hover(fig, [dots], [(x_unit, "@x{0.00}"), ("error", "@y{0.000}")])
        self._name, self._unit, self._one = name, x_unit, one_is
        super().__init__(fig, name)

    def show(self, xs: Sequence[float], losses: Sequence[float], nearest: float, best: float) -> None:
        """Draw the values tried; losses that are not finite were not tried."""
        scale = nearest if math.isfinite(nearest) and nearest > 0 else 1.0
        points = [(x, y / scale) for x, y in zip(xs, losses, strict=False) if math.isfinite(y)]
        points.sort()
        taken = min(points, key=lambda p: abs(p[0] - best), default=None)
        ys = [y for _, y in points]
        low, high = (points[0][0], points[-1][0]) if points else (0.0, 1.0)
        top = min(max([1.05, *ys]), 3.0)
        bottom = max(0.0, min([1.0, *ys]) - 0.1 * (top - min([1.0, *ys])))
        room = (high - low or 1.0) * 0.04
        deep = taken is not None and taken[1] < 0.97
        names: list[tuple[float, float, str, str, int]] = [
            (taken[0] if taken and deep else high + room, 1.0, self._one, "center" if deep else "right", -4)
        ]
        if taken:
            side = "left" if taken[0] < (low + high) / 2 else "right"
            names.append((taken[0], taken[1], f"{self._unit} = {taken[0]:.2f}: {taken[1]:.3f}", side, 20))
        self.update(
            {
                "curve": {"x": [x for x, _ in points], "y": ys},
                "taken": {"x": [taken[0]] if taken else [], "y": [taken[1]] if taken else []},
                "names": {k: [n[i] for n in names] for i, k in enumerate(("x", "y", "text", "align", "dy"))},
            },
            {
                "x_range": {"start": low - room, "end": high + room},
                "y_range": {"start": bottom - 0.12 * (top - bottom), "end": top + 0.1 * (top - bottom)},
            },
            f"{self._name}: " + (", ".join(f"{x:.2f}: {format_number(y)}" for x, y in points) or "nothing tried"),
        )
