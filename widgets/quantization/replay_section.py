"""GPTQ column by column, with a scrubber of its own: weight, error, what later columns take over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events.quantization_methods import GptqReplay
from widgets.choice import Choice, Slider, whole_slider
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.player import Player
from widgets.quantization.replay_frames import Frames, told
from widgets.quantization.replay_plot import DOWN, UP, LossPlot, ReplayMap, RowPlot
from widgets.quantization.state import QuantizationState
from widgets.section import Section, heading, section
from widgets.text import Words


class ReplaySection(Section[QuantizationState]):
    """A map of how far weights moved, one row of them, the loss, and the step in words.

    Attributes:
        step: the column on screen; None begins where both sides can be seen.
        row: which of the rows shown is drawn below the map.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.step: int | None = None
        self.row = 0
        self._playing = False
        self._frames: Frames | None = None
        self._choice = Choice(desk, "Matrix")
        self._player = Player(unit="column", rate=5)
        self._player.on_step(self._stepped)
        self._player.on_play(self._played)
        self._told = Words(css_class="lab-answer")
        self._map, self._line, self._loss = ReplayMap(), RowPlot(), LossPlot()
        self._map_legend = Words(css_class="lab-caption")
        self._map_legend.legend([("moved up", UP, False), ("moved down (hatched)", DOWN, False)])
        self._slider = Slider(desk, "row", whole_slider("Marked row", 7), self._take_row)
        self._row_legend = Words(css_class="lab-caption")
        self._row_legend.legend(
            [
                ("quantized", "--lab-series-3", False),
                ("not yet", UP, False),
                ("where it was at first", "--lab-muted", False),
            ]
        )
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all steps")
        self.widget = section(
            heading(
                "GPTQ, column by column",
                "One column is rounded at a time. Columns that are not rounded yet move so that the layer’s output "
                "changes as little as possible.",
            ),
            self._choice.widget,
            self._player,
            self._told,
            self._map,
            self._map_legend,
            self._slider.widget,
            self._line,
            self._row_legend,
            self._loss,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        return bool(state.replays)

    def reset(self) -> None:
        self.step, self._playing, self._frames = None, False, None

    def _stepped(self, step: int) -> None:
        with self._desk.lock:
            self.step = step
        self._desk.touch()

    def _played(self, playing: bool) -> None:
        with self._desk.lock:
            self._playing = playing
        self._desk.touch()

    def _take_row(self, row: float) -> None:
        self.row = int(row)

    def frames(self, replay: GptqReplay) -> Frames | None:
        """The frames of a replay, made once; None where its arrays do not fit."""
        if self._frames is None or self._frames.replay is not replay:
            try:
                self._frames = Frames(replay)
            except ValueError:
                self._frames = None
        return self._frames

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        del upto
        if not state.replays:
            return
        replay = state.replays[self._choice.show([f"layer {r.layer} {r.projection}" for r in state.replays])]
        frames = self.frames(replay)
        if frames is None or not frames.steps or not replay.rows:
            self._told.say(("p", "This replay cannot be drawn: its arrays do not fit one another."))
            return
        step = min(frames.steps // 3 if self.step is None else self.step, frames.steps - 1)
        self.row = min(self.row, len(replay.rows) - 1)
        frame = frames.at(step)
        self._player.show(step=step, available=frames.steps, playing=self._playing, unit="column")
        self._told.say(*(("p", words) for words in told(frames, frame, self.row)))
        self._map.show(frames, frame, self.row)
        self._slider.show(whole_slider("Marked row", len(replay.rows) - 1), self.row)
        self._line.show(frames, frame, self.row)
        self._loss.show(frames, step)
        self._caption.say(("p", _caption(replay)))
        if not live:
            self._table.show(step_table(frames, self.row))

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        if not state.replays:
            return ()
        frames = self.frames(state.replays[min(self._choice.index, len(state.replays) - 1)])
        return (step_table(frames, self.row),) if frames and frames.replay.rows else ()

    def link(self) -> dict[str, Any]:
        return {"column": None if self.step is None else self.step + 1, "row_drawn": self.row or None}

    def restore(self, settings: dict[str, Any]) -> None:
        column, row = settings.get("column"), settings.get("row_drawn")
        if isinstance(column, int) and not isinstance(column, bool) and 0 < column < 100_000:
            self.step = column - 1
        if isinstance(row, int) and not isinstance(row, bool) and 0 <= row < 100_000:
            self.row = row


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
