"""The base of pages by task: one state, the worked example and the step that is looked at."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from lab.events import Event
from widgets.experiment import Desk
from widgets.run_state import TaskState
from widgets.text import Words

S = TypeVar("S", bound=TaskState)


class RunViews(Generic[S]):
    """All pictures of one run, drawn from one state; the rest of `ExperimentViews` is the page's own.

    Args:
        make: the state's class.

    Attributes:
        step_unit: the name of a step of the task on screen.
    """

    step_unit = "step"

    def __init__(self, desk: Desk, make: type[S]) -> None:
        self._desk = desk
        self._make = make
        self.state: S = make()
        self._example: dict[str, Any] | None = None
        self._intro = Words(css_class="lab-intro")

    def reset(self) -> None:
        """Forget the run."""
        self.state = self._make()

    def fold(self, event: Event) -> None:
        """Take one event in."""
        self.state.fold(event)

    def settle(self) -> None:
        """Ask for the worked example; it is recorded with the run."""
        self._desk.ask("worked_example", {}, self._take_example, of_run=False)

    def _take_example(self, answer: dict[str, Any] | None, why: str) -> None:
        del why
        if answer is not None:
            with self._desk.lock:
                self._example = answer
            self._desk.touch()

    def steps(self) -> int:
        """What the player can show so far."""
        return self.state.steps

    def planned_steps(self) -> int:
        """How many steps a living run will have, as far as can be told now."""
        steps = self.state.steps
        return steps if self.state.end is not None else max(steps, self.planned(steps))

    def planned(self, steps: int) -> int:
        """The same for a run that has not ended and has come to `steps`; less than them counts as them."""
        return steps

    def note(self) -> str:
        """Where the living run is; "": the run's own progress says it."""
        return ""

    def upto(self) -> int:
        """The step that is drawn: the player's, else the newest; -1 before the first."""
        last, step = self.state.steps - 1, self._desk.cursor.step
        return last if step is None else min(step, last)
