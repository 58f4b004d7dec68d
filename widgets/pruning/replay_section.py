"""SparseGPT column by column, and what it leaves of magnitude's error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ipywidgets as ipw

from lab.events.pruning import SparseGptReplay
from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.experiment import Table
from widgets.numbers import number
from widgets.pruning.method_marks import mark_of
from widgets.pruning.replay_frames import Frames, told
from widgets.pruning.state import PruningState
from widgets.replay import section as replay_section
from widgets.replay.frames import Frame


class ReplaySection(replay_section.ReplaySection[PruningState, Frames]):
    """The shared section with the errors of the rows' outputs."""

    title = "SparseGPT, column by column"
    intro = (
        "Columns are taken from left to right. What is pruned is set to 0, and columns to the right move so that the "
        "layer’s output changes as little as possible."
    )
    done = "done: 0 if pruned"

    def more(self) -> Sequence[ipw.Widget]:
        self._losses = BarTable(
            label="Mean square error of the outputs of these rows", first="row", picture="row errors"
        )
        return (self._losses,)

    @classmethod
    def replays(cls, state: PruningState) -> Sequence[SparseGptReplay]:
        return state.replays

    def make(self, replay: SparseGptReplay) -> Frames:
        return Frames(replay)

    def told(self, frames: Frames, frame: Frame) -> Sequence[str]:
        return told(frames, frame, self.row)

    def draw(self, frames: Frames, frame: Frame) -> None:
        del frame
        self._losses.show(
            loss_rows(frames),
            (
                Column("magnitude", mark_of("magnitude").series),
                Column("SparseGPT", mark_of("sparsegpt").series),
                Column("ratio"),
            ),
        )

    def caption(self, replay: SparseGptReplay) -> str:
        width = replay.original.shape[1] if len(replay.original.shape) == 2 else 0
        return (
            f"MEASURED on layer {replay.layer} {replay.projection}: {len(replay.rows)} rows, columns {replay.start} to "
            f"{replay.start + width - 1} of {replay.width}. The bars: mean square error of each row’s output with the "
            f"same share pruned. Damping {replay.damping:g} of the mean of the Hessian’s diagonal; masks are chosen "
            f"{replay.block} columns at a time."
        )

    def step_table(self, frames: Frames) -> Table:
        return step_table(frames, self.row)


def loss_rows(frames: Frames) -> list[BarRow]:
    """The error of each row's output by both."""
    rows = []
    for row, before, after in zip(frames.rows, frames.magnitude.tolist(), frames.final.tolist(), strict=True):
        if not (math.isfinite(before) and math.isfinite(after)):
            rows.append(BarRow(str(row), note="not measured", cells=("–", "–", "–")))
            continue
        ratio = after / before if before else None
        bars = [Bar(before, mark_of("magnitude").series), Bar(after, mark_of("sparsegpt").series)]
        rows.append(BarRow(str(row), bars, [number(before), number(after), f"{number(ratio, 2)} ×"]))
    return rows


def step_table(frames: Frames, row: int) -> Table:
    """One row a step, for the row of weights that is marked."""
    head = ["column", f"row {frames.rows[row]} at first", "at its turn", "score", "kept", "in the end", "passed on"]
    rows = [
        [
            frames.replay.start + step,
            *(_number(a[row, step]) for a in (frames.original, frames.at_turn, frames.score)),
            "yes" if frames.mask[row, step] > 0 else "no",
            _number(frames.values[row, step]),
            _number(frames.error[row, step]),
        ]
        for step in range(frames.steps)
    ]
    return Table("sparsegpt_steps", head, rows)


def _number(value: float) -> float | None:
    return float(f"{float(value):.6g}") if math.isfinite(value) else None
