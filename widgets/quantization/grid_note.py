"""Whether the model's own weights lie on a quantization grid: beside every picture, since it changes what they mean."""

from __future__ import annotations

from widgets.experiment import Desk
from widgets.quantization.sections import Section
from widgets.quantization.sentences import number, percent
from widgets.quantization.state import QuantizationState
from widgets.text import Words


class GridNoteSection(Section):
    """A note in words; not there for a model that lies on no grid."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.widget = Words(css_class="lab-note-box")

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        """Whether there is something to know."""
        return bool(state.grid and state.grid.words)

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Say it."""
        del upto, live
        grid = state.grid
        if grid is None:
            return
        words = grid.words if grid.words.endswith(".") else f"{grid.words}."
        self.widget.say(("p", words), ("p", demonstration(state)))


def demonstration(state: QuantizationState) -> str:
    """What was tried and what came of it."""
    grid = state.grid
    if grid is None or not grid.checked:
        return ""
    tried = f"MEASURED: {grid.checked} put on 4 bits, float minimum, groups of 32"
    if grid.changed == 0 and grid.max_error == 0:
        return f"{tried}: not one weight changed, the error is exactly 0."
    return f"{tried}: {percent(grid.changed)} of its weights changed, by at most {number(grid.max_error)}."
