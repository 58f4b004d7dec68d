"""GPTQ column by column, with a scrubber of its own: weight, error, what later columns take over."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ipywidgets as ipw

from lab.events.quantization_methods import GptqReplay
from widgets.experiment import Table
from widgets.quantization.replay_frames import Frames, told
from widgets.quantization.replay_plot import LossPlot
from widgets.quantization.state import QuantizationState
from widgets.replay import section as replay_section
from widgets.replay.frames import Frame


class ReplaySection(replay_section.ReplaySection[QuantizationState, Frames]):
    """The shared section with the loss as it grows."""

    title = "GPTQ, column by column"
    intro = (
        "One column is rounded at a time. Columns that are not rounded yet move so that the layer’s output changes as "
        "little as possible."
    )
    done = "quantized"

    def more(self) -> Sequence[ipw.Widget]:
        self._loss = LossPlot()
        return (self._loss,)

    @classmethod
    def replays(cls, state: QuantizationState) -> Sequence[GptqReplay]:
        return state.replays

    def make(self, replay: GptqReplay) -> Frames:
        return Frames(replay)

    def told(self, frames: Frames, frame: Frame) -> Sequence[str]:
        return told(frames, frame, self.row)

    def caption(self, replay: GptqReplay) -> str:
        return _caption(replay)

    def step_table(self, frames: Frames) -> Table:
        return step_table(frames, self.row)

    def draw(self, frames: Frames, frame: Frame) -> None:
        self._loss.show(frames, frame.step)


def _caption(replay: GptqReplay) -> str:
    order = (
        "Columns with the largest inputs come first (activation order)."
        if replay.act_order
        else "Columns come from left to right."
    )
    return (
        f"MEASURED on layer {replay.layer} {replay.projection}: {len(replay.rows)} rows, {len(replay.columns)} of "
        f"{replay.width} columns. {order} Damping {replay.damping:g} of the mean of the Hessian’s diagonal."
    )


def step_table(frames: Frames, row: int) -> Table:
    """One row a step, for the row of weights that is marked."""
    replay = frames.replay
    codes = replay.codes.numpy()
    head = ["step", "column", f"row {replay.rows[row]} at first", "at its turn", "code", "quantized", "error"]
    head += ["moves later ones by", "error of outputs so far"]
    rows = [
        [
            replay.start + step + 1,
            replay.columns[step],
            _number(frames.original[row, step]),
            _number(frames.at_turn[row, step]),
            int(codes[row, step]) if codes.shape == frames.values.shape else None,
            _number(frames.values[row, step]),
            _number(frames.error[row, step]),
            _number(frames.passed_on[row, step]),
            _number(frames.loss[step]),
        ]
        for step in range(frames.steps)
    ]
    return Table("gptq_steps", head, rows)


def _number(value: float) -> float | None:
    return float(f"{float(value):.6g}") if math.isfinite(value) else None
