"""SparseGPT column by column: the weights after each step, from the arrays of the event."""

from __future__ import annotations

import numpy as np

from lab.events.pruning import SparseGptReplay
from widgets.format import typeset_number
from widgets.replay.frames import Frame, frame_at, largest_change


class Frames:
    """All frames of one replay.

    Raises:
        ValueError: arrays whose shapes do not fit one another.
    """

    def __init__(self, replay: SparseGptReplay) -> None:
        self.replay = replay
        names = ("original", "at_turn", "score", "mask", "values", "error")
        arrays = [getattr(replay, name).numpy().astype(np.float64) for name in names]
        self.original, self.at_turn, self.score, self.mask, self.values, self.error = arrays
        self.spread = replay.spread.numpy().astype(np.float64)
        self.magnitude = replay.magnitude_loss.numpy().astype(np.float64)
        self.final = replay.final_loss.numpy().astype(np.float64)
        rows = len(replay.rows)
        steps = self.original.shape[1] if self.original.ndim == 2 else -1
        if any(a.shape != (rows, steps) for a in arrays) or self.spread.shape != (steps, steps):
            raise ValueError(f"a replay of {rows} rows and {steps} columns has arrays of other shapes")
        if self.magnitude.shape != (rows,) or self.final.shape != (rows,):
            raise ValueError(f"a replay of {rows} rows has losses of other shapes")

    @property
    def rows(self) -> tuple[int, ...]:
        """Numbers of the rows shown."""
        return self.replay.rows

    @property
    def steps(self) -> int:
        """Columns shown."""
        return int(self.original.shape[1])

    @property
    def largest(self) -> float:
        """The largest change of a weight in the last frame: the scale of all of them."""
        return largest_change(self.values, self.original)

    def at(self, step: int) -> Frame:
        """The frame after `step`, 0 the first."""
        return frame_at(step, self.original, self.at_turn, self.values, self.error, self.spread)


def told(frames: Frames, frame: Frame, row: int) -> list[str]:
    """What a step did, in sentences."""
    replay, step = frames.replay, frame.step
    first, turn = float(frames.original[row, step]), float(frames.at_turn[row, step])
    column = replay.start + step
    moved = abs(turn - first) > 1e-9
    took = f", {typeset_number(turn)} after making up for columns before it" if moved else ""
    kept = frames.mask[row, step] > 0
    became = "stays" if kept else "is pruned"
    said = [
        f"Column {column} of the matrix, counted from 0. In row {replay.rows[row]}, the marked one, the weight was "
        f"{typeset_number(first)} at first{took}; its score w² / [U]² is "
        f"{typeset_number(float(frames.score[row, step]))}: it {became}."
    ]
    most = np.abs(frame.pushed[row])
    if kept:
        said.append("A weight that stays loses nothing: nothing is passed on.")
    elif step + 1 < frames.steps and most.max() > 0:
        at = int(most.argmax())
        said.append(
            f"Later columns make up for it: among those shown, column {replay.start + at} moves most, by "
            f"{typeset_number(float(frame.pushed[row, at]))}."
        )
    else:
        said.append("No later column that is shown makes up for it.")
    return said
