"""Three errors of each setting as a line across: where two lines cross, the errors rank the settings differently."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bokeh.models import FixedTicker

from lab.events.quantization import ModelErrors
from widgets.plot import Columns, Plot, add_hover, new_figure, paint, source

COLOURS = ("--lab-series-1", "--lab-series-2", "--lab-series-3", "--lab-series-4", "--lab-series-5")
MOST = len(COLOURS)
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle")
SIGNS = ("●", "■", "▲", "◆", "▼")
"""A marker for each line, and the same one in its label: lines are told apart without their colours."""
MEASURES = ("weight error", "output error", "KL(dense ‖ quantized)")
TICKS = tuple(m * 10.0**p for p in range(-6, 5) for m in (1, 2, 5))
Values = tuple[float | None, float | None, float]


def values_of(errors: ModelErrors) -> Values:
    """The three, the smaller the better."""
    return errors.mean_weight_error, errors.mean_output_error, errors.divergence.kl


def bases(settings: Sequence[ModelErrors]) -> tuple[float | None, ...]:
    """What errors are divided by: the run's own, which stand first; where one is 0, the least of the others."""
    if not settings:
        return (None, None, None)
    columns = zip(*(values_of(s) for s in settings), strict=True)
    return tuple(
        column[0]
        if column[0]
        else min((v for v in column if v is not None and v > 0 and math.isfinite(v)), default=None)
        for column in columns
    )


def base_words(settings: Sequence[ModelErrors]) -> str:
    """Which errors are not drawn as multiples of the run's own, and why; "" where all are."""
    none = [name for name, own in zip(MEASURES, values_of(settings[0]), strict=True) if own == 0] if settings else []
    if not none:
        return ""
    return (
        f"The run's own setting has no {', no '.join(none)}: there the lines are multiples of the least error above 0, "
        "and 0 has no place on this axis."
    )


class ErrorsPlot(Plot):
    """Three places across; each error is divided by that of the first setting, the run's own; see `bases`."""

    def __init__(self) -> None:
        fig = new_figure(x_label="", y_label="times the run's own setting", height=220, y_axis_type="log")
        fig.xaxis.ticker = FixedTicker(ticks=[0, 1, 2])
        fig.xaxis.major_label_overrides = dict(enumerate(MEASURES))
        fig.xaxis.major_label_text_font_size = "12px"
        fig.yaxis.ticker = FixedTicker(ticks=[1], minor_ticks=[], name="ticks")
        fig.yaxis.major_label_overrides = {tick: f"{tick:g}" for tick in TICKS}
        dots = []
        for i, colour in enumerate(COLOURS):
            data = source(f"line{i}", "x", "y", "value")
            line = fig.line("x", "y", source=data, line_width=3 if i == 0 else 2, line_dash=[] if i == 0 else [6, 3])
            paint(line.glyph, line_color=colour)
            dot = fig.scatter("x", "y", source=data, size=10, marker=MARKERS[i], line_color=None)
            paint(dot.glyph, fill_color=colour)
            dots.append(dot)
        add_hover(fig, dots, [("times the run's own", "@y{0.00}"), ("itself", "@value")])
        super().__init__(fig, "Three errors of each setting")

    def show(self, settings: Sequence[ModelErrors], labels: Sequence[str]) -> None:
        """Draw up to `MOST` settings, the run's own first."""
        own = bases(settings)
        data: dict[str, Columns] = {}
        ratios, said = [1.0], []
        for i in range(MOST):
            points = []
            if i < len(settings):
                for x, (value, base) in enumerate(zip(values_of(settings[i]), own, strict=True)):
                    if value is not None and base and value > 0 and math.isfinite(value / base):
                        points.append((x, value / base, value))
                said.append(f"{labels[i]}: {', '.join(f'{MEASURES[x]} {v:.3g}' for x, _, v in points)}")
            ratios += [r for _, r, _ in points]
            data[f"line{i}"] = {
                "x": [x for x, _, _ in points],
                "y": [r for _, r, _ in points],
                "value": [f"{v:.3g}" for _, _, v in points],
            }
        room = max(1.15, (max(ratios) / min(ratios)) ** 0.12)
        low, high = min(ratios) / room, max(ratios) * room
        self.update(
            data,
            {
                "ticks": {"ticks": [tick for tick in TICKS if low <= tick <= high]},
                "x_range": {"start": -0.35, "end": 2.5},
                "y_range": {"start": low, "end": high},
            },
            "Three errors of each setting. " + ("; ".join(said) or "None measured yet."),
        )
