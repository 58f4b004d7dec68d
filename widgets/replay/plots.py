"""Column by column: how far each weight moved, and one row of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import AdaptiveTicker

from widgets.format import typeset_number
from widgets.layer_axis import layer_figure
from widgets.plot import Plot, add_point_hover, paint, source
from widgets.replay.frames import Frame, Replayed

UP, DOWN = "--lab-series-1", "--lab-series-2"
MOST_ROWS = 24


def step_range(steps: int) -> dict[str, float]:
    """The x range of `steps` columns, the first of which is 1; room at the left for the mark of a row."""
    return {"start": -0.3, "end": max(steps, 1) + 0.5}


class ReplayMap(Plot):
    """Rows by columns, in the order in which columns are taken: blue moved up, hatched orange moved down."""

    def __init__(self) -> None:
        fig = layer_figure(y_label="row shown", x_label="", height=210)
        fig.ygrid.visible = False
        fig.yaxis[0].ticker = AdaptiveTicker(min_interval=1, mantissas=[1, 2, 5])
        cells = []
        for name, colour in (("up", UP), ("down", DOWN)):
            data = source(name, "x", "y", "alpha", "before", "now", "moved")
            made = fig.rect("x", "y", 0.96, 0.9, source=data, fill_alpha="alpha", line_width=0)
            paint(made.glyph, fill_color=colour, line_color=colour)
            if name == "down":  # so that the two are told apart without their colours
                made.glyph.update(hatch_pattern="/", hatch_scale=5, hatch_weight=1, hatch_alpha="alpha")
                paint(made.glyph, hatch_color="--lab-text")
            cells.append(made)
        done, ring = source("done", "left", "right", "top", "bottom"), source("turn", "x", "y", "height")
        wash = fig.quad("left", "right", "top", "bottom", source=done, fill_alpha=0, line_width=1, line_dash=[3, 3])
        paint(wash.glyph, line_color="--lab-muted")
        turn = fig.rect("x", "y", 1.0, "height", source=ring, fill_alpha=0, line_width=2)
        paint(turn.glyph, line_color="--lab-text")
        row = source("row", "x", "y")
        mark = fig.scatter("x", "y", source=row, size=9, marker="triangle", angle=-np.pi / 2)
        paint(mark.glyph, fill_color="--lab-text", line_color="--lab-text")
        add_point_hover(fig, cells, [("step", "@x"), ("at first", "@before"), ("now", "@now"), ("moved by", "@moved")])
        super().__init__(fig, "How far each weight has moved")

    def show(self, frames: Replayed, frame: Frame, row: int) -> None:
        """Draw one frame; `row` is the one drawn below."""
        height, width = min(frame.moved.shape[0], MOST_ROWS), frame.moved.shape[1]
        largest = frames.largest or 1.0
        data: dict[str, dict[str, list[Any]]] = {
            name: {k: [] for k in ("x", "y", "alpha", "before", "now", "moved")} for name in ("up", "down")
        }
        for y in range(height):
            for x in range(width):
                moved = float(frame.moved[y, x])
                if abs(moved) < largest * 0.004:
                    continue
                cell = data["up" if moved > 0 else "down"]
                cell["x"].append(x + 1)
                cell["y"].append(y)
                cell["alpha"].append(round(0.06 + 0.94 * min(1.0, abs(moved) / largest), 2))
                cell["before"].append(typeset_number(float(frames.original[y, x])))
                cell["now"].append(typeset_number(float(frame.now[y, x])))
                cell["moved"].append(typeset_number(moved))
        self.update(
            {
                **data,
                "done": {"left": [0.5], "right": [frame.step + 1.5], "top": [-0.5], "bottom": [height - 0.5]},
                "turn": {"x": [frame.step + 1], "y": [(height - 1) / 2], "height": [height]},
                "row": {"x": [0.1], "y": [row]},
            },
            {"x_range": step_range(width), "y_range": {"start": height - 0.4, "end": -0.6}},
            f"After {frame.step + 1} of {width} columns: those that are done moved by up to "
            f"{typeset_number(_most(frame.moved[:, : frame.step + 1]))}, the others by up to "
            f"{typeset_number(_most(frame.moved[:, frame.step + 1 :]))}",
        )


def _most(values: Any) -> float:
    return float(np.abs(values).max()) if values.size else 0.0


class RowPlot(Plot):
    """One row of weights: hollow where they were, filled where they are; squares are done."""

    def __init__(self) -> None:
        fig = layer_figure(y_label="weight", x_label="columns, in the order they are taken", height=220)
        paths = source("paths", "x0", "y0", "x1", "y1")
        moves = fig.segment("x0", "y0", "x1", "y1", source=paths, line_width=1.5)
        paint(moves.glyph, line_color="--lab-muted")
        first = fig.scatter("x", "y", source=source("first", "x", "y"), size=6, fill_alpha=0, line_width=1.2)
        paint(first.glyph, line_color="--lab-muted")
        waiting = fig.scatter("x", "y", source=source("waiting", "x", "y", "before", "now"), size=6)
        paint(waiting.glyph, fill_color=UP, line_color=UP)
        done = fig.scatter("x", "y", source=source("done", "x", "y", "before", "now"), size=7, marker="square")
        paint(done.glyph, fill_color="--lab-series-3", line_color="--lab-series-3")
        now = fig.line("x", "y", source=source("now", "x", "y"), line_width=1)
        paint(now.glyph, line_color="--lab-text")
        add_point_hover(fig, [waiting, done], [("step", "@x"), ("at first", "@before"), ("now", "@now")])
        super().__init__(fig, "One row of weights")

    def show(self, frames: Replayed, frame: Frame, row: int) -> None:
        """Draw row number `row` of those shown."""
        before, now, step = frames.original[row], frame.now[row], frame.step
        width = len(before)
        low, high = float(min(before.min(), now.min())), float(max(before.max(), now.max()))
        room = (high - low or 1.0) * 0.08
        places = list(range(1, width + 1))

        def part(some: list[int]) -> dict[str, list[Any]]:
            return {
                "x": some,
                "y": [float(now[i - 1]) for i in some],
                "before": [typeset_number(float(before[i - 1])) for i in some],
                "now": [typeset_number(float(now[i - 1])) for i in some],
            }

        self.update(
            {
                "paths": {
                    "x0": places,
                    "x1": places,
                    "y0": [float(v) for v in before],
                    "y1": [float(v) for v in now],
                },
                "first": {"x": places, "y": [float(v) for v in before]},
                "done": part(places[: step + 1]),
                "waiting": part(places[step + 1 :]),
                "now": {"x": [step + 1] * 2, "y": [low - room, high + room]},
            },
            {"x_range": step_range(width), "y_range": {"start": low - room, "end": high + room}},
            f"Row {frames.rows[row]} after {step + 1} of {width} columns",
        )
