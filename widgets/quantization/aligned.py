"""What plots over the layers share, so that a layer stands at the same place in each; and a few small helpers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets as ipw
from bokeh.models import AdaptiveTicker, HoverTool
from bokeh.models.renderers import DataRenderer
from bokeh.plotting import figure

from widgets.format import format_number, format_share
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


def add_point_hover(fig: figure, renderers: Sequence[DataRenderer], rows: list[tuple[str, str]]) -> None:
    """A tooltip of what lies under the pointer itself; Bokeh escapes the fields."""
    fig.add_tools(HoverTool(renderers=list(renderers), tooltips=rows, mode="mouse"))


def signed(value: float) -> str:
    """A number with a minus sign as axes have it."""
    return format_number(value).replace("-", "\u2212")


def percent(share: float | None) -> str:
    """A share as a percentage that no line breaks: "15 %"."""
    return format_share(share).replace(" ", "\u00a0")


def sections(*children: ipw.Widget) -> ipw.VBox:
    """Several sections that one class draws."""
    box = ipw.VBox(list(children))
    box.add_class("lab-sections")
    return box


def choose_children(box: ipw.VBox, children: Sequence[ipw.Widget]) -> None:
    """Put these into a box, if they are not there already."""
    if list(box.children) != list(children):
        box.children = list(children)
