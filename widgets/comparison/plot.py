"""One quantity of two runs on the same axes: A solid with discs, B dashed with squares."""

from __future__ import annotations

from collections.abc import Sequence

from bokeh.models import AdaptiveTicker

from widgets.comparison.data import SharedPlot
from widgets.format import format_number
from widgets.plot import Columns, Plot, add_point_hover, add_words, new_figure, paint, source

COLOURS = {"a": "--lab-series-1", "b": "--lab-series-2"}
MOST_POINTS = 1000
MOST_MARKS = 30
ROOM = 0.16
"""Above the highest point, of what lies below it: a letter that stands above the other one takes 20 of 230 pixels."""
Points = Sequence[tuple[float, float]]


class TwoRunsPlot(Plot):
    """Lines of A and B. Where both lie on one another, B's dashes let A's colour through."""

    def __init__(self, x: str, y: str) -> None:
        fig = new_figure(x_label=x, y_label=y, height=230)
        fig.xaxis[0].ticker = AdaptiveTicker(name="ticker", mantissas=[1, 2, 5])
        for side, marker, dash in (("a", "circle", []), ("b", "square", [7, 4])):
            line = fig.line("x", "y", source=source(f"{side}_line", "x", "y"), line_width=2.2, line_dash=dash)
            paint(line.glyph, line_color=COLOURS[side])
            marks = fig.scatter("x", "y", source=source(f"{side}_marks", "x", "y", "words"), size=7, marker=marker)
            paint(marks.glyph, fill_color=COLOURS[side], line_color="--lab-surface")
            add_point_hover(fig, [marks], [(side.upper(), "@words")])
        add_words(fig, source("names", "x", "y", "text", "dy"), text_baseline="middle", x_offset=10, y_offset="dy")
        super().__init__(fig, "Both runs")

    def show(self, shared: SharedPlot) -> None:
        """Draw both lines; the axes hold all of both."""
        a, b = numbers(shared.a), numbers(shared.b)
        xs, ys = [x for x, _ in (*a, *b)], [y for _, y in (*a, *b)]
        low, high = min(ys, default=0.0), max(ys, default=1.0)
        start, end = min(xs, default=0.0), max(xs, default=1.0)
        from_zero = low >= 0 and low < 0.6 * high
        bottom = -0.05 * high if from_zero else low - (high - low or abs(high) or 1.0) * 0.08
        room, width = (high - bottom or 1.0) * ROOM, end - start or 1.0
        data: dict[str, Columns] = {}
        for side, points in (("a", a), ("b", b)):
            line = thinned(points, MOST_POINTS) if shared.joined else []
            marks = thinned(points, MOST_MARKS if shared.joined else MOST_POINTS)
            data[f"{side}_line"] = {"x": [x for x, _ in line], "y": [y for _, y in line]}
            data[f"{side}_marks"] = {
                "x": [x for x, _ in marks],
                "y": [y for _, y in marks],
                "words": [f"{shared.x} {format_number(x)}: {format_number(y)}" for x, y in marks],
            }
        data["names"] = _names(a, b, (high - bottom + room) * 0.08) if shared.joined else _names((), (), 0.0)
        self.update(
            data,
            {
                "x_range": {"start": start - width * 0.02, "end": end + width * 0.06},
                "y_range": {"start": bottom, "end": high + room},
                "ticker": {"min_interval": 1 if all(x == int(x) for x in xs) else 0},  # tokens and layers are whole
            },
            f"{shared.title}, {shared.y} over {shared.x}. A: {_ends(a)}. B: {_ends(b)}.",
        )


def numbers(points: Sequence[tuple[float | str, float]]) -> list[tuple[float, float]]:
    """The points whose places are numbers."""
    return [(x, y) for x, y in points if not isinstance(x, str)]


def thinned(points: Points, most: int) -> list[tuple[float, float]]:
    """At most `most` of these, evenly, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[i * (len(points) - 1) // (most - 1)] for i in range(most)]


def _names(a: Points, b: Points, near: float) -> dict[str, list[float | str]]:
    """A letter at the end of each line; one above the other where they end together."""
    ends = [(points[-1], name) for points, name in ((a, "A"), (b, "B")) if points]
    close = len(ends) == 2 and ends[0][0][0] == ends[1][0][0] and abs(ends[0][0][1] - ends[1][0][1]) < near
    upper = max(ends, key=lambda e: e[0][1])[1] if close else ""
    return {
        "x": [x for (x, _), _ in ends],
        "y": [y for (_, y), _ in ends],
        "text": [name for _, name in ends],
        "dy": [(-12 if name == upper else 1) if close else 0 for _, name in ends],
    }


def _ends(points: Points) -> str:
    if not points:
        return "nothing"
    (x0, y0), (x1, y1) = points[0], points[-1]
    return f"{format_number(y0)} at {format_number(x0)} to {format_number(y1)} at {format_number(x1)}"
