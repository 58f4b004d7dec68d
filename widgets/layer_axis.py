"""What plots over the layers share, so that a layer stands at the same place in each."""

from __future__ import annotations

from typing import Any

from bokeh.models import AdaptiveTicker
from bokeh.plotting import figure

from widgets.plot import new_figure

LEFT = 78
"""Pixels left of the first layer, wide enough for the names of projections."""


def layer_figure(*, y_label: str, height: int, x_label: str = "") -> figure:
    """A figure whose x axis counts layers."""
    fig = new_figure(x_label=x_label, y_label=y_label, height=height)
    fig.min_border_left = LEFT
    fig.min_border_right = 14
    fig.xaxis[0].ticker = AdaptiveTicker(min_interval=1, mantissas=[1, 2, 5])
    return fig


def layer_range(layers: int) -> dict[str, Any]:
    """The x range of `layers` layers, each around its number."""
    return {"start": -0.5, "end": max(layers, 1) - 0.5}
