"""GPTQ column by column: the loss as it grows."""

from __future__ import annotations

from widgets.format import typeset_number
from widgets.layer_axis import layer_figure
from widgets.plot import Plot, add_hover, add_words, paint, source
from widgets.quantization.replay_frames import Frames
from widgets.replay.plots import step_range


class LossPlot(Plot):
    """What the columns so far add to the error of the output, below the two ends that it is measured against."""

    def __init__(self) -> None:
        fig = layer_figure(
            y_label="mean square error of these rows’ outputs, added up",
            x_label="columns, in the order they are taken",
            height=190,
        )
        for name, colour in (("nearest", "--lab-series-4"), ("final", "--lab-series-3")):
            end = fig.line("x", "y", source=source(name, "x", "y"), line_width=1.5, line_dash=[6, 4])
            paint(end.glyph, line_color=colour)
        climb = fig.line("x", "y", source=source("gptq", "x", "y", "words"), line_width=2)
        paint(climb.glyph, line_color="--lab-series-3")
        now = fig.scatter("x", "y", source=source("now", "x", "y"), size=9, line_width=2.5)
        paint(now.glyph, line_color="--lab-text", fill_color="--lab-surface")
        add_words(fig, source("names", "x", "y", "text", "dy"), text_align="left", y_offset="dy")
        add_hover(fig, [climb], [("step", "@x"), ("error so far", "@words")])
        super().__init__(fig, "Error of the output so far")

    def show(self, frames: Frames, step: int) -> None:
        """Draw the curve whole, with the step marked."""
        steps = list(range(1, frames.steps + 1))
        loss = [float(v) for v in frames.loss]
        end = frames.steps + 0.5
        own = max([*loss, frames.final, 1e-30])
        beyond = frames.nearest > 3 * own  # drawn to scale, the climb would be a flat line
        top = 1.5 * own if beyond else max(own, frames.nearest)
        near = abs(frames.nearest - frames.final) < 0.12 * top
        told = f"round to nearest, all columns: {typeset_number(frames.nearest)}"
        self.update(
            {
                "gptq": {"x": steps, "y": loss, "words": [typeset_number(v) for v in loss]},
                "nearest": {"x": [0, end], "y": [frames.nearest] * 2} if not beyond else {"x": [], "y": []},
                "final": {"x": [0, end], "y": [frames.final] * 2},
                "now": {"x": [step + 1], "y": [loss[step]]},
                "names": {
                    "x": [0, 0],
                    "y": [top if beyond else frames.nearest, frames.final],
                    "text": [
                        f"{told}, beyond the picture" if beyond else told,
                        f"GPTQ, all columns: {typeset_number(frames.final)}",
                    ],
                    "dy": [-4, 14 if near and frames.nearest >= frames.final else -4],
                },
            },
            {"x_range": step_range(frames.steps), "y_range": {"start": 0, "end": top * 1.18}},
            f"After {step + 1} columns the rows’ outputs have an error of {typeset_number(loss[step])}; in the end "
            f"{typeset_number(frames.final)}, rounded to nearest {typeset_number(frames.nearest)}",
        )
