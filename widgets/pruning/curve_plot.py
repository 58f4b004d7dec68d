"""Sparsity against KL, perplexity or flips: a line a method from the dense model on, the run's own in a ring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bokeh.models import CustomJSTickFormatter, LogTicker

from lab.events.pruning import CurvePoint
from widgets.numbers import SUPERSCRIPTS, number, percent
from widgets.plot import Plot, add_point_hover, add_words, new_figure, paint, source
from widgets.pruning.curve_measures import FLOOR, MEASURES, Measure, dense_points, flips, kl, measured, perplexity
from widgets.pruning.method_marks import MARKS, Mark, mark_of

HEIGHT = 268
"""Pixels of the plot between its ends, about."""
_SHORT = {"global_magnitude": "global", "rows": "rows, heads"}
"""Names that fit beside the lines on a narrow page."""
EDGE = 3.0
"""The lower edge of the logarithmic axis lies so many times below the least figure; what is 0 stands on it."""
_TICK = f"""
if (tick >= 1e-3 && tick < 1e5) return String(Number(tick.toPrecision(2)));
const [times, power] = tick.toExponential(0).replace("+", "").split("e");
const raised = [...power].map((c) => "{SUPERSCRIPTS}"["-0123456789".indexOf(c)]).join("");
return (times === "1" ? "" : times + " × ") + "10" + raised;
"""
_COLUMNS = ("x", "y", "label", "kl", "gone", "flips", "perplexity")


class CurvePlot(Plot):
    """Lines with a symbol at each measured point; a vertical axis of logarithms."""

    def __init__(self) -> None:
        fig = new_figure(
            x_label="sparsity of the pruned matrices, %",
            y_label=MEASURES["kl"].axis,
            height=340,
            y_axis_type="log",
        )
        fig.y_range.update(start=1e-3)
        fig.yaxis[0].formatter = CustomJSTickFormatter(code=_TICK)
        fig.yaxis[0].ticker = LogTicker(desired_num_ticks=6, num_minor_ticks=0)
        dots: list[Any] = []
        for mark in MARKS:
            data = source(mark.name, *_COLUMNS)
            line = fig.line("x", "y", source=data, line_width=2, line_dash=list(mark.dash))
            paint(line.glyph, line_color=mark.colour)
            dot: Any = fig.scatter("x", "y", source=data, size=mark.size, marker=mark.marker, line_width=1.5)
            paint(dot.glyph, fill_color=mark.colour, line_color=mark.colour)
            dots.append(dot)
        ring = fig.scatter("x", "y", source=source("chosen", "x", "y"), size=19, line_width=2.5, fill_alpha=0)
        paint(ring.glyph, line_color="--lab-text")
        add_words(fig, source("names", "x", "y", "text", "dy"), text_baseline="middle", x_offset=10, y_offset="dy")
        rows = [("", "@label"), ("sparsity", "@gone"), ("KL(dense ‖ pruned)", "@kl nats"), ("flips", "@flips")]
        add_point_hover(fig, dots, [*rows, ("perplexity", "@perplexity")])
        super().__init__(fig, "Sparsity against KL(dense ‖ pruned)")

    def show(self, points: Sequence[CurvePoint], measure: Measure = MEASURES["kl"]) -> None:
        """Draw the points measured so far, and the dense model before them."""
        run = [p for p in measured(points) if math.isfinite(figure_of(p, measure))]
        drawn = [*dense_points(run), *run]
        bottom = edge([figure_of(p, measure) for p in drawn])

        def height(point: CurvePoint) -> float:
            return max(figure_of(point, measure), bottom)

        data: dict[str, dict[str, list[float | str]]] = {}
        ends: list[tuple[CurvePoint, Mark]] = []
        for mark in MARKS:
            own = sorted((p for p in drawn if mark_of(p.setting.method) is mark), key=lambda p: p.sparsity)
            data[mark.name] = {
                "x": [p.sparsity * 100 for p in own],
                "y": [height(p) for p in own],
                "label": [p.setting.label for p in own],
                "kl": [number(kl(p)) for p in own],
                "gone": [percent(p.sparsity) for p in own],
                "flips": [flips(p) for p in own],
                "perplexity": [perplexity(p) for p in own],
            }
            if own:
                ends.append((own[-1], mark))
        ring = next((p for p in drawn if p.chosen), None)
        shares = [p.sparsity * 100 for p in drawn]
        low, high = (min(shares), max(shares)) if shares else (0.0, 100.0)
        span = max(high - low, 5.0)
        top = max((height(p) for p in drawn), default=1.0) * 1.6
        start = bottom / max((top / bottom) ** 0.04, 1.1)
        self.update(
            {
                **data,
                "chosen": {"x": [ring.sparsity * 100] if ring else [], "y": [height(ring)] if ring else []},
                "names": _names([(p, mark, height(p)) for p, mark in ends], start, top),
            },
            {
                "x_range": {"start": low - span * 0.04, "end": high + span * (0.34 if ends else 0.04)},
                "y_range": {"start": start, "end": top},
                "title": {"text": measure.axis},
            },
            _words(drawn, ring, measure),
        )


def figure_of(point: CurvePoint, measure: Measure) -> float:
    """The figure of a measured point: 0 where it is rounding."""
    found = measure.of(point.divergence) if point.divergence else math.nan
    return 0.0 if found <= FLOOR else found


def edge(figures: Sequence[float]) -> float:
    """Where what is 0 stands on the logarithmic axis: below all that is not; the least figure where none is 0."""
    least = min((f for f in figures if f > 0), default=1e-3)
    return least / EDGE if any(f <= 0 for f in figures) else least


def _names(ends: Sequence[tuple[CurvePoint, Mark, float]], bottom: float, top: float) -> dict[str, list[float | str]]:
    """The name of each line at its last point, kept apart."""
    pixels = HEIGHT / max(math.log(top / bottom), 1e-9)
    ranked = sorted(ends, key=lambda end: end[2])
    places = [math.log(height / bottom) * pixels for _, _, height in ranked]
    placed = apart(places, 14.0, HEIGHT - 8)
    return {
        "x": [point.sparsity * 100 for point, _, _ in ranked],
        "y": [height for _, _, height in ranked],
        "text": [_SHORT.get(mark.name, mark.title) for _, mark, _ in ranked],
        "dy": [was - now for was, now in zip(places, placed, strict=True)],
    }


def apart(places: Sequence[float], least: float, most: float) -> list[float]:
    """Ascending places moved so that they are `least` apart and none is above `most`, where there is room."""
    up: list[float] = []
    for place in places:
        up.append(max(place, up[-1] + least) if up else place)
    ceiling = most
    for i in range(len(up) - 1, -1, -1):
        up[i] = min(up[i], ceiling)
        ceiling = up[i] - least
    return up


def _words(points: Sequence[CurvePoint], ring: CurvePoint | None, measure: Measure) -> str:
    if not points:
        return f"Sparsity against {measure.words}: nothing measured yet"
    figures = dict.fromkeys(f"{p.setting.label}: {measure.write(figure_of(p, measure))}" for p in points)
    own = f". The run's own: {ring.setting.label}" if ring else ""
    return f"{len(figures)} points, sparsity against {measure.words}. {'; '.join(figures)}{own}"
