"""The button that ends a training: the run goes on with the best so far."""

from __future__ import annotations

from typing import Any

from widgets.action_row import Action, ActionRow
from widgets.experiment import Desk

ENOUGH = "enough"
"""The question that ends it."""


class Enough:
    """One button, there while a training goes on, and what became of it.

    Args:
        desk: of the section that it stands in.
        then: what the run goes on with and to.

    Attributes:
        widget: the button's row.
        told: in words what became of it; "" where nothing was pressed.
    """

    def __init__(self, desk: Desk, then: str) -> None:
        self._desk = desk
        self._action = Action(ENOUGH, "Stop training, go on with the best so far", then)
        self.told = ""
        self.widget = ActionRow(label="The training")
        self.widget.on_action(self._pressed)

    def reset(self) -> None:
        """Another run begins."""
        self.told = ""

    def offer(self, *, going: bool) -> None:
        """Show the button while a training goes on that has taken a step."""
        self.widget.show([self._action] if going else [])

    def _pressed(self, name: str) -> None:
        del name

        def reply(answer: dict[str, Any] | None, why: str) -> None:
            with self._desk.lock:
                ends = answer is not None and answer.get("training") is True
                self.told = "The training ends after this step." if ends else why or "No training is going on."
            self._desk.touch()

        self._desk.ask(ENOUGH, {}, reply, of_run=True)
