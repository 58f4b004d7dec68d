"""A map of the model: layers across, projections down, each matrix filled by one figure of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bokeh.models import CustomJSTickFormatter, FixedTicker

from lab.experiments.compared.fields import CONV1D, PROJECTIONS
from widgets.format import format_number
from widgets.layer_axis import layer_figure, layer_range
from widgets.plot import Plot, add_point_hover, add_words, paint, source

COLOUR = "--lab-series-1"
"""One hue, from faint to full: readable without colour vision, and on both themes."""
FAINT, FULL = 0.07, 1.0
_STEPS = 32
# The names are fixed in the code and never come from an event: this is code.
_NAMES = f"const names = {list(PROJECTIONS)}; return names[Math.round(tick)] ?? '';"


@dataclass(frozen=True)
class MapItem:
    """One matrix: the figure that fills it (not finite: it has none), and more of it for the tooltip by column."""

    layer: int
    projection: str
    value: float
    tips: Mapping[str, str | float | int] = field(default_factory=dict)


class LayerMap(Plot):
    """One rectangle a matrix; the largest figure is ringed, the scale stands above the map. Matrices without a figure
    are hatched, with a word for them beside the scale; those still to come are outlined.

    Args:
        label: what the picture shows before there is anything.
        none: the word for a matrix without a figure.
        tips: lines of the tooltip as (label, Bokeh's format), the columns of `MapItem.tips` in order.
        columns: names of these columns.
    """

    def __init__(
        self, label: str, tips: Sequence[tuple[str, str]], columns: Sequence[str], *, none: str = "not measured"
    ) -> None:
        self._columns = tuple(columns)
        self._none = none
        fig = layer_figure(y_label="", x_label="layer", height=250)
        fig.yaxis[0].ticker = FixedTicker(ticks=list(range(len(PROJECTIONS))))
        fig.yaxis[0].formatter = CustomJSTickFormatter(code=_NAMES)
        fig.ygrid.visible = False
        cells = source("cells", "x", "y", "alpha", "name", *columns)
        empty, ramp = source("empty", "x", "y"), source("ramp", "x", "y", "alpha", "width", "height")
        names, most = source("names", "x", "y", "text", "align"), source("most", "x", "y")
        rects = fig.rect("x", "y", 0.94, 0.88, source=cells, fill_alpha="alpha", line_width=0)
        paint(rects.glyph, fill_color=COLOUR, line_color=COLOUR)
        hollow = fig.rect("x", "y", 0.9, 0.8, source=empty, fill_alpha=0, line_width=1)
        paint(hollow.glyph, line_color="--lab-line")
        hatched = fig.rect(
            "x",
            "y",
            0.94,
            0.8,
            source=source("none", "x", "y"),
            fill_alpha=0,
            line_width=1,
            hatch_pattern="right_diagonal_line",
            hatch_scale=9,
            hatch_weight=1,
            hatch_alpha=0.28,
        )
        paint(hatched.glyph, line_color="--lab-line", hatch_color="--lab-muted")
        scale = fig.rect("x", "y", "width", "height", source=ramp, fill_alpha="alpha", line_width=0)
        paint(scale.glyph, fill_color=COLOUR, line_color=COLOUR)
        ring = fig.rect("x", "y", 0.98, 0.96, source=most, fill_alpha=0, line_width=2)
        paint(ring.glyph, line_color="--lab-text")
        add_words(fig, names, text_align="align", text_baseline="middle")
        add_point_hover(fig, [rects], [("layer", "@x"), ("projection", "@name"), *tips])
        super().__init__(fig, label)

    def draw(
        self,
        items: Iterable[MapItem],
        layers: int,
        label: str,
        *,
        planned: Iterable[tuple[int, str]] = (),
        write: Callable[[float], str] = format_number,
        ends: tuple[float, float] | None = None,
        title: str = "",
    ) -> None:
        """Draw matrices.

        Args:
            layers: how many the model has.
            label: the picture in words.
            planned: (layer, projection) of matrices that are still to come, as empty places.
            write: how a figure is written at the ends of the scale.
            ends: of the scale; None takes the smallest and the largest figure.
            title: what the colour stands for and its unit, above the map.
        """
        known = [item for item in items if item.projection in PROJECTIONS]
        coming = [place for place in planned if place[1] in PROJECTIONS]
        finite = [item for item in known if math.isfinite(item.value)]
        values = [item.value for item in finite]
        low, high = ends or ((min(values), max(values)) if values else (0.0, 1.0))
        first, last = _rows({item.projection for item in known} | {name for _, name in coming})
        there = {(item.layer, item.projection) for item in known}
        missing = [place for place in coming if place not in there]
        none = [(item.layer, item.projection) for item in known if not math.isfinite(item.value)]
        worst = max(finite, key=lambda item: item.value, default=None)
        ringed = worst is not None and min(values) < worst.value
        top = first - 1.25
        self.update(
            {
                "cells": {
                    "x": [item.layer for item in finite],
                    "y": [PROJECTIONS.index(item.projection) for item in finite],
                    "alpha": [round(shade(item.value, low, high), 3) for item in finite],
                    "name": [item.projection for item in finite],
                    **{column: [item.tips.get(column, "") for item in finite] for column in self._columns},
                },
                "empty": {"x": [layer for layer, _ in missing], "y": [PROJECTIONS.index(name) for _, name in missing]},
                "none": {
                    "x": [*(layer for layer, _ in none), *([0] if none else [])],
                    "y": [*(PROJECTIONS.index(name) for _, name in none), *([top] if none else [])],
                },
                "ramp": _ramp(layers, top) if finite else _NO_RAMP,
                "most": {"x": [worst.layer], "y": [PROJECTIONS.index(worst.projection)]}
                if worst and ringed
                else {"x": [], "y": []},
                "names": _all_words(
                    _scale_words(layers, top, write(low), write(high)) if finite else _NO_WORDS,
                    _none_words(layers, top, self._none) if none else _NO_WORDS,
                ),
            },
            {
                "x_range": layer_range(layers),
                "y_range": {"start": last + 0.5, "end": top - 0.45},
                "title": {"text": title},
            },
            label,
        )


def shade(value: float, low: float, high: float) -> float:
    """How full the colour of a figure is between the smallest and the largest."""
    share = (value - low) / (high - low) if high > low else 1.0
    return FAINT + (FULL - FAINT) * min(1.0, max(0.0, share))


def _rows(present: set[str]) -> tuple[int, int]:
    """The first and the last row that the map has: those of one kind of model."""
    split = len(PROJECTIONS) - len(CONV1D)
    return (split, len(PROJECTIONS) - 1) if present & set(CONV1D) else (0, split - 1)


_AFTER = 0.125
"""Share of the width that the largest figure has beside the scale: "14.6 %" fits at 800 px."""
_NO_RAMP: dict[str, list[Any]] = {"x": [], "y": [], "alpha": [], "width": [], "height": []}
_NO_WORDS: dict[str, list[Any]] = {"x": [], "y": [], "text": [], "align": []}


def _ramp(layers: int, y: float) -> dict[str, list[Any]]:
    """The scale: from the smallest figure to the largest."""
    span = layers * 0.3
    left, width = layers - 0.5 - span - layers * _AFTER, span / _STEPS
    return {
        "x": [left + width * (i + 0.5) for i in range(_STEPS)],
        "y": [y] * _STEPS,
        "alpha": [round(shade(i / (_STEPS - 1), 0, 1), 3) for i in range(_STEPS)],
        "width": [width] * _STEPS,
        "height": [0.55] * _STEPS,
    }


def _scale_words(layers: int, y: float, low: str, high: str) -> dict[str, list[Any]]:
    span, after, gap = layers * 0.3, layers * _AFTER, layers * 0.008
    return {
        "x": [layers - 0.5 - span - after - gap, layers - 0.5 - after + gap],
        "y": [y, y],
        "text": [low, high],
        "align": ["right", "left"],
    }


def _none_words(layers: int, y: float, word: str) -> dict[str, list[Any]]:
    """Beside the first place of the line above the map, which is hatched as a key."""
    return {"x": [0.5 + layers * 0.008], "y": [y], "text": [word], "align": ["left"]}


def _all_words(*some: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {column: [value for words in some for value in words[column]] for column in _NO_WORDS}
