"""GPTQ column by column: the weights after each step, from the arrays of the event."""

from __future__ import annotations

import numpy as np

from lab.events.quantization_methods import GptqReplay
from widgets.format import typeset_number
from widgets.replay.frames import Frame, frame_at, largest_change


class Frames:
    """All frames of one replay.

    Raises:
        ValueError: arrays whose shapes do not fit one another.
    """

    def __init__(self, replay: GptqReplay) -> None:
        self.replay = replay
        names = ("original", "at_turn", "values", "error", "passed_on", "loss")
        arrays = [getattr(replay, name).numpy().astype(np.float64) for name in names]
        self.original, self.at_turn, self.values, self.error, self.passed_on, loss = arrays
        self.spread = replay.spread.numpy().astype(np.float64)
        rows, steps = len(replay.rows), len(replay.columns)
        if any(a.shape != (rows, steps) for a in arrays) or self.spread.shape != (steps, steps):
            raise ValueError(f"a replay of {rows} rows and {steps} columns has arrays of other shapes")
        self.loss = np.cumsum(loss.sum(axis=0))
        self.nearest = float(replay.nearest_loss.numpy().sum())
        self.final = float(replay.final_loss.numpy().sum())

    @property
    def rows(self) -> tuple[int, ...]:
        """Numbers of the rows shown."""
        return self.replay.rows

    @property
    def steps(self) -> int:
        """Columns shown."""
        return len(self.replay.columns)

    @property
    def whole(self) -> bool:
        """Whether all columns of the matrix are shown, so that the loss climbs to its end."""
        return self.replay.start == 0 and self.steps == self.replay.width

    @property
    def largest(self) -> float:
        """The largest change of a weight in the last frame: the scale of all of them."""
        return largest_change(self.values, self.original)

    def at(self, step: int) -> Frame:
        """The frame after `step`, 0 the first: from a column's turn back, what is still to come is taken off."""
        return frame_at(step, self.original, self.at_turn, self.values, self.error, self.spread)


def told(frames: Frames, frame: Frame, row: int) -> list[str]:
    """What a step did, in sentences."""
    replay, step = frames.replay, frame.step
    first, turn = float(frames.original[row, step]), float(frames.at_turn[row, step])
    code, error = float(frames.values[row, step]), float(frames.error[row, step])
    took = f", {typeset_number(turn)} after taking over errors of columns before it" if abs(turn - first) > 1e-9 else ""
    said = [
        f"Step {replay.start + step + 1}: column {replay.columns[step]} of the matrix is rounded in all rows. In row "
        f"{replay.rows[row]}, the marked one, the weight was {typeset_number(first)} at first{took}, and becomes "
        f"{typeset_number(code)}."
    ]
    most = np.abs(frame.pushed[row])
    if step + 1 < frames.steps and most.max() > 0:
        at = int(most.argmax())
        said.append(
            f"Its error of {typeset_number(error)} is passed on: among the columns shown, {replay.columns[at]} moves "
            f"most, by {typeset_number(float(frame.pushed[row, at]))}; all later ones together by "
            f"{typeset_number(float(frames.passed_on[row, step]))}."
        )
    else:
        said.append(f"Its error of {typeset_number(error)} moves no later column that is shown.")
    if frames.nearest > 0:
        said.append(
            f"In the end the outputs of these rows have {frames.final / frames.nearest:.2f} of the mean square error "
            "that rounding to nearest leaves."
        )
    return said
