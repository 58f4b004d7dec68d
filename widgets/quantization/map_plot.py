"""The map of the model: layers across, projections down, coloured by error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from bokeh.models import CustomJSTickFormatter, FixedTicker

from lab.events.quantization import MapCell
from lab.experiments.quantization.choices import CONV1D, PROJECTIONS
from widgets.format import format_number
from widgets.layer_axis import layer_figure, layer_range
from widgets.plot import Plot, add_point_hover, add_words, paint, source
from widgets.quantization.state import Matrix

Measure = Literal["weight", "output", "largest"]
MEASURES: dict[Measure, str] = {
    "weight": "weight error",
    "output": "output error",
    "largest": "largest change of a weight",
}
UNITS: dict[Measure, str] = {
    "weight": "|W′ − W| / |W|",
    "output": "|X(W′ − W)ᵀ| / |XWᵀ|, held-out text",
    "largest": "largest |W′ − W|",
}
COLOUR = "--lab-series-1"
"""One hue, from faint to full: readable without colour vision, and on both themes."""
FAINT, FULL = 0.07, 1.0
_STEPS = 32
# The names are fixed here and never come from an event: this is code.
_NAMES = f"const names = {list(PROJECTIONS)}; return names[Math.round(tick)] ?? '';"


def value(cell: MapCell, measure: Measure) -> float:
    """The error of a cell that is drawn."""
    return {"weight": cell.weight_error, "output": cell.output_error, "largest": cell.max_error}[measure]


class MapPlot(Plot):
    """One rectangle a matrix; the largest error is marked, the scale stands above the map."""

    def __init__(self) -> None:
        fig = layer_figure(y_label="", x_label="layer", height=250)
        fig.yaxis[0].ticker = FixedTicker(ticks=list(range(len(PROJECTIONS))))
        fig.yaxis[0].formatter = CustomJSTickFormatter(code=_NAMES)
        fig.ygrid.visible = False
        cells = source("cells", "x", "y", "alpha", "name", "error", "weight", "output", "largest", "bits", "bpw")
        empty, ramp = source("empty", "x", "y"), source("ramp", "x", "y", "alpha", "width", "height")
        names, most = source("names", "x", "y", "text", "align"), source("most", "x", "y")
        rects = fig.rect("x", "y", 0.94, 0.88, source=cells, fill_alpha="alpha", line_width=0)
        paint(rects.glyph, fill_color=COLOUR, line_color=COLOUR)
        hollow = fig.rect("x", "y", 0.9, 0.8, source=empty, fill_alpha=0, line_width=1)
        paint(hollow.glyph, line_color="--lab-line")
        scale = fig.rect("x", "y", "width", "height", source=ramp, fill_alpha="alpha", line_width=0)
        paint(scale.glyph, fill_color=COLOUR, line_color=COLOUR)
        ring = fig.rect("x", "y", 0.98, 0.96, source=most, fill_alpha=0, line_width=2)
        paint(ring.glyph, line_color="--lab-text")
        add_words(fig, names, text_align="align", text_baseline="middle")
        add_point_hover(
            fig,
            [rects],
            [
                ("layer", "@x"),
                ("projection", "@name"),
                ("weight error", "@weight"),
                ("output error", "@output"),
                ("largest change", "@largest"),
                ("bits", "@bits, @bpw a weight in all"),
            ],
        )
        super().__init__(fig, "Errors of all matrices of the model")

    def show(self, cells: Mapping[Matrix, MapCell], layers: int, measure: Measure, planned: list[Matrix]) -> None:
        """Draw cells.

        Args:
            layers: how many the model has.
            planned: matrices that are still to come, as empty places.
        """
        known = [c for c in cells.values() if c.projection in PROJECTIONS]
        finite = [c for c in known if math.isfinite(value(c, measure))]
        low, high = _ends([value(c, measure) for c in finite])
        first, last = _rows(known, planned)
        missing = [m for m in planned if m not in cells and m.projection in PROJECTIONS]
        missing += [Matrix(c.layer, c.projection) for c in known if not math.isfinite(value(c, measure))]
        worst = max(finite, key=lambda c: value(c, measure), default=None)
        top = first - 1.25
        self.update(
            {
                "cells": {
                    "x": [c.layer for c in finite],
                    "y": [PROJECTIONS.index(c.projection) for c in finite],
                    "alpha": [round(shade(value(c, measure), low, high), 3) for c in finite],
                    "name": [c.projection for c in finite],
                    "error": [format_number(value(c, measure)) for c in finite],
                    "weight": [format_number(c.weight_error) for c in finite],
                    "output": [format_number(c.output_error) for c in finite],
                    "largest": [format_number(c.max_error) for c in finite],
                    "bits": [c.bits for c in finite],
                    "bpw": [format_number(c.bits_per_weight) for c in finite],
                },
                "empty": {"x": [m.layer for m in missing], "y": [PROJECTIONS.index(m.projection) for m in missing]},
                "ramp": _ramp(layers, top) if finite else _NO_RAMP,
                "most": {"x": [worst.layer], "y": [PROJECTIONS.index(worst.projection)]}
                if worst
                else {"x": [], "y": []},
                "names": _scale_words(layers, top, low, high) if finite else _NO_WORDS,
            },
            {"x_range": layer_range(layers), "y_range": {"start": last + 0.5, "end": top - 0.45}},
            _label(finite, worst, measure),
        )


def shade(error: float, low: float, high: float) -> float:
    """How full the colour of an error is between the smallest and the largest."""
    share = (error - low) / (high - low) if high > low else 1.0
    return FAINT + (FULL - FAINT) * min(1.0, max(0.0, share))


def _ends(errors: list[float]) -> tuple[float, float]:
    return (min(errors), max(errors)) if errors else (0.0, 1.0)


def _rows(cells: list[MapCell], planned: list[Matrix]) -> tuple[int, int]:
    """The first and the last row that the map has: those of one kind of model."""
    present = {c.projection for c in cells} | {m.projection for m in planned}
    split = len(PROJECTIONS) - len(CONV1D)
    return (split, len(PROJECTIONS) - 1) if present & set(CONV1D) else (0, split - 1)


_NO_RAMP: dict[str, list[Any]] = {"x": [], "y": [], "alpha": [], "width": [], "height": []}
_NO_WORDS: dict[str, list[Any]] = {"x": [], "y": [], "text": [], "align": []}


def _ramp(layers: int, y: float) -> dict[str, list[Any]]:
    """The scale: from the smallest error to the largest."""
    span = layers * 0.3
    left, width = layers - 0.5 - span - layers * 0.09, span / _STEPS
    return {
        "x": [left + width * (i + 0.5) for i in range(_STEPS)],
        "y": [y] * _STEPS,
        "alpha": [round(shade(i / (_STEPS - 1), 0, 1), 3) for i in range(_STEPS)],
        "width": [width] * _STEPS,
        "height": [0.55] * _STEPS,
    }


def _scale_words(layers: int, y: float, low: float, high: float) -> dict[str, list[Any]]:
    span, after = layers * 0.3, layers * 0.09
    gap = layers * 0.008
    return {
        "x": [layers - 0.5 - span - after - gap, layers - 0.5 - after + gap],
        "y": [y, y],
        "text": [format_number(low), format_number(high)],
        "align": ["right", "left"],
    }


def _label(cells: list[MapCell], worst: MapCell | None, measure: Measure) -> str:
    if worst is None:
        return "Map of the model: nothing measured yet"
    least = min(cells, key=lambda c: value(c, measure))
    return (
        f"Map of the model, {MEASURES[measure]} of {len(cells)} matrices: largest "
        f"{format_number(value(worst, measure))} at layer {worst.layer} {worst.projection}, smallest "
        f"{format_number(value(least, measure))} at layer {least.layer} {least.projection}"
    )
