"""What a setting costs and what it loses: bits per weight against KL(dense ‖ quantized), the frontier between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bokeh.models import CustomJSTickFormatter, FixedTicker, LogTicker
from bokeh.models.annotations import Legend, LegendItem

from lab.events.quantization import ParetoPoint
from widgets.format import format_bytes, format_number
from widgets.plot import FONT, Plot, add_point_hover, add_words, new_figure, paint, source
from widgets.quantization.method_marks import MARKS, mark_of

FLOOR = 1e-7
"""A smaller divergence lies on the lower edge of the logarithmic axis: it is rounding of the arithmetic itself."""
_TICK = "return tick >= 1e-4 ? String(Number(tick.toPrecision(2))) : tick.toExponential(0).replace('e', 'e');"
_COLUMNS = ("x", "y", "label", "kl", "bits", "size", "flips")


class ParetoPlot(Plot):
    """A symbol a method, the frontier as a line, the run's own setting in a ring."""

    def __init__(self) -> None:
        fig = new_figure(
            x_label="bits per weight, scales and all else counted",
            y_label="KL(dense ‖ quantized), nats, log scale",
            height=360,
            x_axis_type="log",
            y_axis_type="log",
        )
        fig.x_range.update(start=2, end=16)
        fig.xaxis[0].ticker = FixedTicker(ticks=[1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32])
        fig.xaxis[0].formatter = CustomJSTickFormatter(code="return String(tick);")
        fig.y_range.update(start=1e-3)
        fig.yaxis[0].formatter = CustomJSTickFormatter(code=_TICK)
        fig.yaxis[0].ticker = LogTicker(desired_num_ticks=6, num_minor_ticks=0)
        edge = source("frontier", "x", "y")
        paint(fig.line("x", "y", source=edge, line_width=1.5, line_dash=[5, 4]).glyph, line_color="--lab-text")
        dots: list[Any] = []
        items: list[LegendItem] = []
        for mark in MARKS:
            made: Any = fig.scatter(
                "x", "y", source=source(mark.name, *_COLUMNS), size=mark.size, marker=mark.marker, fill_alpha=0.85
            )
            paint(made.glyph, fill_color=mark.colour, line_color="--lab-surface")
            dots.append(made)
            items.append(LegendItem(label=mark.title, renderers=[made], name=f"item_{mark.name}", visible=False))
        ring = fig.scatter("x", "y", source=source("chosen", "x", "y"), size=18, line_width=2.5, fill_alpha=0)
        paint(ring.glyph, line_color="--lab-text")
        add_words(
            fig,
            source("names", "x", "y", "text", "align", "dx", "dy"),
            text_align="align",
            x_offset="dx",
            y_offset="dy",
        )
        fig.add_layout(_legend(items), "above")
        add_point_hover(
            fig,
            dots,
            [
                ("", "@label"),
                ("bits per weight", "@bits"),
                ("KL(dense ‖ quantized)", "@kl nats"),
                ("flips", "@flips"),
                ("model", "@size"),
            ],
        )
        super().__init__(fig, "Bits per weight against KL(dense ‖ quantized)")

    def show(self, points: Sequence[ParetoPoint]) -> None:
        """Draw the settings measured so far."""
        drawn = measured(points)
        best = frontier(drawn)
        chosen = next((p for p in drawn if p.chosen), None)
        data: dict[str, dict[str, list[float | str]]] = {}
        for mark in MARKS:
            own = [p for p in drawn if mark_of(p.setting.method) is mark]
            data[mark.name] = {
                "x": [p.bits_per_weight for p in own],
                "y": [height(p) for p in own],
                "label": [p.setting.label for p in own],
                "kl": [format_number(kl(p)) for p in own],
                "bits": [format_number(p.bits_per_weight) for p in own],
                "size": [format_bytes(p.model_bytes) for p in own],
                "flips": [_flips(p) for p in own],
            }
        bits = [p.bits_per_weight for p in drawn]
        ys = [height(p) for p in drawn]
        low, high = (min(bits) / 1.1, max(bits) * 1.1) if bits else (1.8, 9.0)
        bottom, top = _decades(ys)
        self.update(
            {
                **data,
                "frontier": {"x": [p.bits_per_weight for p in best], "y": [height(p) for p in best]},
                "chosen": {
                    "x": [chosen.bits_per_weight] if chosen else [],
                    "y": [height(chosen)] if chosen else [],
                },
                "names": _names(best, chosen, low, high),
            },
            {
                "x_range": {"start": low, "end": high},
                "y_range": {"start": bottom, "end": top},
                **{f"item_{mark.name}": {"visible": bool(data[mark.name]["x"])} for mark in MARKS},
            },
            _words(drawn, best, chosen),
        )


def _legend(items: list[LegendItem]) -> Legend:
    legend = Legend(
        items=items,
        orientation="horizontal",
        ncols=3,
        label_text_font=FONT,
        label_text_font_size="12px",
        border_line_width=0,
        background_fill_alpha=0,
        margin=0,
        spacing=2,
        label_standoff=0,
        glyph_width=22,
        glyph_height=20,
        location="top_left",
    )
    paint(legend, label_text_color="--lab-text")
    return legend


def kl(point: ParetoPoint) -> float:
    """The divergence of a measured point."""
    return point.divergence.kl if point.divergence else math.nan


def height(point: ParetoPoint) -> float:
    """Where a point stands on the logarithmic axis."""
    return max(kl(point), FLOOR)


def measured(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """Those that were not skipped."""
    return [p for p in points if math.isfinite(kl(p)) and math.isfinite(p.bits_per_weight)]


def frontier(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """Those that no other beats in bits without losing more, the fewest bits first."""
    best: list[ParetoPoint] = []
    for point in sorted(points, key=lambda p: (p.bits_per_weight, kl(p))):
        if not best or kl(point) < kl(best[-1]):
            best.append(point)
    return best


def better_than(point: ParetoPoint, points: Sequence[ParetoPoint]) -> ParetoPoint | None:
    """The setting that loses least at no more bits than `point`, if one loses less."""
    rivals = [p for p in points if p.bits_per_weight <= point.bits_per_weight + 1e-9 and kl(p) < kl(point)]
    return min(rivals, key=kl, default=None)


def _decades(ys: Sequence[float]) -> tuple[float, float]:
    """Ends of the axis that leave a little room."""
    if not ys:
        return 1e-3, 1.0
    low, high = math.log10(min(ys)), math.log10(max(ys))
    room = max(0.12, (high - low) * 0.09)
    return 10 ** (low - room), 10 ** (high + 1.5 * room)


def _names(
    best: Sequence[ParetoPoint], chosen: ParetoPoint | None, low: float, high: float
) -> dict[str, list[float | str]]:
    """The chosen setting's name, and those of the ends of the frontier."""
    named = [p for p in (best[0], best[-1]) if p is not chosen] if len(best) > 1 else []
    out: dict[str, list[float | str]] = {k: [] for k in ("x", "y", "text", "align", "dx", "dy")}
    for point in [*named, *([chosen] if chosen else [])]:
        left = point.bits_per_weight < math.sqrt(low * high)
        out["x"].append(point.bits_per_weight)
        out["y"].append(height(point))
        out["text"].append(point.setting.label)
        out["align"].append("left" if left else "right")
        ring = 13 if point is chosen else 0 if left else 9
        out["dx"].append(ring if left else -ring)
        out["dy"].append(-7 if point is chosen else -9 if left else 14)
    return out


def _flips(point: ParetoPoint) -> str:
    found = point.divergence
    return f"{found.flips:,} of {found.positions:,} positions" if found else ""


def _words(points: Sequence[ParetoPoint], best: Sequence[ParetoPoint], chosen: ParetoPoint | None) -> str:
    if not points:
        return "Bits per weight against KL(dense ‖ quantized): nothing measured yet"
    edge = "; ".join(f"{p.setting.label}: {p.bits_per_weight:.2f} bits, {format_number(kl(p))} nats" for p in best)
    own = f". The chosen one, {chosen.setting.label}: {format_number(kl(chosen))} nats" if chosen else ""
    return f"{len(points)} settings, bits per weight against KL(dense ‖ quantized). On the frontier: {edge}{own}"
