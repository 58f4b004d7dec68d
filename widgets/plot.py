"""The base of all plots: a Bokeh figure drawn once, its data replaced by one writer.

BokehJS comes inline from the installed bokeh, never from another host. The figure travels once as a
JSON item; its data travel as the widget's state, so that what changed before the page was there is
not lost and nothing echoes back. Colours are names of the page's CSS variables (tags such as
"line_color:--lab-series-1"), so a plot follows the theme of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import traitlets
from bokeh.core.properties import value
from bokeh.embed import json_item
from bokeh.models import ColumnDataSource, HoverTool, Model, Range1d
from bokeh.models.annotations import Title
from bokeh.models.renderers import DataRenderer
from bokeh.plotting import figure
from bokeh.resources import Resources

from widgets.view import View

FONT = "Inter, ui-sans-serif, system-ui, sans-serif"
Columns = Mapping[str, Sequence[float | int | str | None]]


@cache
def bokehjs_source() -> str:
    """BokehJS of the installed bokeh as one classic script, about 1 MB."""
    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)


class BokehLoader(View):
    """Puts BokehJS into the page; shown once, before the first plot."""

    module: ClassVar[str] = "bokeh_loader"
    defaults: ClassVar[Mapping[str, Any]] = {"source": ""}
    changing: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__(source=bokehjs_source())


class Plot(View):
    """One plot. Its figure and sources are built by the caller; data are set with `update`.

    Args:
        fig: a figure from `new_figure`; its sources have names.
        label: what the picture shows, in words, for those who cannot see it.
    """

    module: ClassVar[str] = "plot"
    defaults: ClassVar[Mapping[str, Any]] = {"label": "", "data": {}, "props": {}}
    item = traitlets.Dict().tag(sync=True)  # apart from the state: it travels once

    def __init__(self, fig: figure, label: str) -> None:
        super().__init__(label=label)
        self.item = dict(json_item(fig))
        self.add_class("lab-plot-widget")

    def update(
        self,
        data: Mapping[str, Columns] | None = None,
        props: Mapping[str, Mapping[str, Any]] | None = None,
        label: str | None = None,
    ) -> None:
        """Replace the data of the named sources and set properties of named models. The pump alone calls it."""
        changes: dict[str, Any] = {}
        if data:
            changes["data"] = {**self.state["data"], **{name: dict(columns) for name, columns in data.items()}}
        if props:
            changes["props"] = {**self.state["props"], **{name: dict(values) for name, values in props.items()}}
        if label is not None:
            changes["label"] = label
        self._put(**changes)


def source(name: str, *columns: str) -> ColumnDataSource:
    """An empty named source."""
    return ColumnDataSource(data={column: [] for column in columns}, name=name)


def paint(model: Model, **colours: str) -> Model:
    """Let `model` take its colours from the page: `paint(glyph, line_color="--lab-series-1")`."""
    model.tags = [*model.tags, *(f"{prop}:{variable}" for prop, variable in colours.items())]
    return model


def add_words(fig: figure, data: ColumnDataSource, *, over_lines: bool = False, **more: Any) -> None:
    """Words inside the plot, in its own font, from columns x, y and text; over lines on a ground of their own."""
    if over_lines:
        more["background_fill_alpha"] = 0.85
    words = fig.text("x", "y", "text", source=data, text_font=value(FONT), text_font_size="11px", **more)
    paint(words.glyph, text_color="--lab-text", **({"background_fill_color": "--lab-surface"} if over_lines else {}))


def new_figure(*, x_label: str, y_label: str, height: int = 260, **more: Any) -> figure:
    """A figure in the look of the lab: hairline grid, small muted ticks, no logo, the y title above the axis.

    Args:
        height: pixels; the width follows the page.
    """
    title = Title(
        text=y_label, name="title", text_font=FONT, text_font_size="11px", text_font_style="normal", align="left"
    )
    paint(title, text_color="--lab-muted")
    fig = figure(
        height=height,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        title=title,
        x_range=Range1d(start=0, end=1, name="x_range"),
        y_range=Range1d(start=0, end=1, name="y_range"),
        min_border_left=8,
        min_border_right=14,
        **more,
    )
    fig.background_fill_alpha = 0
    fig.border_fill_alpha = 0
    fig.outline_line_color = None
    fig.xaxis.axis_label = x_label
    for axis in fig.axis:
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "11px"
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_standoff = 6
        axis.major_tick_line_color = axis.minor_tick_line_color = None
        axis.axis_line_color = None
        paint(axis, major_label_text_color="--lab-muted", axis_label_text_color="--lab-muted")
    fig.xgrid.grid_line_color = None
    for grid in fig.ygrid:
        paint(grid, grid_line_color="--lab-line")
    return fig


def add_hover(fig: figure, renderers: Sequence[DataRenderer], rows: Sequence[tuple[str, str]]) -> None:
    """A tooltip with `rows` of (label, bokeh field format); fields hold numbers and fixed words only."""
    fig.add_tools(HoverTool(renderers=list(renderers), tooltips=list(rows), mode="vline", attachment="above"))


def add_point_hover(fig: figure, renderers: Sequence[DataRenderer], rows: Sequence[tuple[str, str]]) -> None:
    """A tooltip of what lies under the pointer itself; Bokeh escapes the fields."""
    fig.add_tools(HoverTool(renderers=list(renderers), tooltips=list(rows), mode="mouse"))
