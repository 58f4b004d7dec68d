"""Whether the model's own weights lie on a quantization grid: beside every picture, since it changes what they mean.

Where other models are at hand whose weights lie on none, a button for each runs the same study there.
"""

from __future__ import annotations

import ipywidgets as ipw

from lab.models.at_hand import off_grid
from widgets.action_row import ActionRow
from widgets.experiment import Desk
from widgets.numbers import number, percent
from widgets.quantization.other_models import MOST, NONE_HERE, OFFER, actions_of, fitted
from widgets.quantization.state import QuantizationState
from widgets.section import Section
from widgets.text import Words


class GridNoteSection(Section[QuantizationState]):
    """A note in words, and what else can be studied; not there for a model that lies on no grid."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._state: QuantizationState | None = None
        self._words = Words(css_class="lab-note-box", rich=True)
        self._models = ActionRow(label="Study another model")
        self._models.on_action(self._chosen)
        self.widget = ipw.VBox([self._words, self._models])

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        """Whether there is something to know."""
        return bool(state.grid and state.grid.words)

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Say it."""
        del upto, live
        self._state = state
        grid, started = state.grid, state.started
        if grid is None:
            return
        words = grid.words if grid.words.endswith(".") else f"{grid.words}."
        lines = [words, demonstration(state)]
        known = self._desk.models() if self._desk.start is not None else None
        here = started.card.model if started is not None else ""
        others = [facts for facts in off_grid(known or (), "quantization") if facts.id != here]
        if others:
            more = f" {len(others) - MOST} more are in the menu of models." if len(others) > MOST else ""
            lines.append(f"{OFFER}{more}")
        elif known is not None:
            lines.append(NONE_HERE)
        self._words.say(*(("p", text) for text in lines if text))
        self._models.show(actions_of(others, started.card.params) if started is not None else ())

    def _chosen(self, model: str) -> None:
        with self._desk.lock:
            started = self._state.started if self._state else None
            facts = next((m for m in self._desk.models() or () if m.id == model), None)
            start = self._desk.start
        if started is not None and facts is not None and start is not None:
            start(fitted(started.card.params, facts)[0], model)


def demonstration(state: QuantizationState) -> str:
    """What was tried and what came of it."""
    grid = state.grid
    if grid is None or not grid.checked:
        return ""
    tried = f"MEASURED: {grid.checked} put on 4 bits, float minimum, groups of 32"
    if grid.changed == 0 and grid.max_error == 0:
        return f"{tried}: not one weight changed, the error is exactly 0."
    return f"{tried}: {percent(grid.changed)} of its weights changed, by at most {number(grid.max_error)}."
