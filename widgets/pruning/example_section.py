"""The lesson's 2 x 3 matrix, pruned step by step by the same code as the model's."""

from __future__ import annotations

from collections.abc import Sequence

from widgets.asked import Answer, Asked
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.player import Player
from widgets.pruning.example_view import Cell, ExampleView
from widgets.pruning.state import PruningState
from widgets.section import Section, heading, section
from widgets.shown import show_if
from widgets.text import Words

STEPS = ("weights", "magnitudes", "ranks", "mask", "pruned")


class ExampleSection(Section[PruningState]):
    """Weights, their sizes, the order in which they go, the mask, what is left.

    Attributes:
        step: of `STEPS`; the last is on screen at first.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.step = len(STEPS) - 1
        self._playing = False
        self._asked = Asked(desk, "worked_example", checked)
        self._player = Player(unit="step", rate=1)
        self._player.on_step(self._stepped)
        self._player.on_play(self._played)
        self._told = Words(css_class="lab-answer")
        self._view = ExampleView(label="The worked example", picture="worked example")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of the example")
        self.widget = section(
            heading("By hand", "Two rows, three columns, half of the weights."),
            self._player,
            self._told,
            self._view,
            self._caption,
            self._table,
        )

    def _stepped(self, step: int) -> None:
        with self._desk.lock:
            self.step = max(0, min(len(STEPS) - 1, step))
        self._desk.touch()

    def _played(self, playing: bool) -> None:
        with self._desk.lock:
            self._playing = playing
        self._desk.touch()

    def settle(self, state: PruningState) -> None:
        """Ask for the example; it is recorded with the run."""
        del state
        self._asked.ask({})

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        del state, upto
        answer = self._asked.ask({}) or self._asked.last
        show_if(answer is not None, self._player, self._view, self._caption, self._table)
        if answer is None:
            self._told.say(("p", self._asked.why_not({}) or "The example is being asked for."))
            return
        self._player.show(step=self.step, available=len(STEPS), playing=self._playing, unit="step")
        self._told.say(("p", told(answer, self.step)))
        self._view.show(cells(answer, self.step), told(answer, self.step))
        self._caption.say(("p", "DERIVED: computed by the code that prunes the model."))
        if not live:
            self._table.show(example_table(answer))

    def tables(self, state: PruningState) -> Sequence[Table]:
        del state
        return (example_table(self._asked.last),) if self._asked.last else ()


def checked(answer: Answer) -> Answer:
    """The answer, if it can be drawn.

    Raises:
        KeyError, TypeError, ValueError: it cannot.
    """
    found = answer.get("matrix", answer) if isinstance(answer.get("matrix"), dict) else answer
    shape = [len(row) for row in found["weights"]]
    if not shape or not shape[0] or len(set(shape)) != 1:
        raise ValueError("an example has no rows and columns")
    for name in ("magnitudes", "ranks", "kept", "became"):
        if [len(row) for row in found[name]] != shape:
            raise ValueError("an example's matrices do not go together")
    for step in range(len(STEPS)):
        told(found, step)
        cells(found, step)
    return found


def _n(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def told(answer: Answer, step: int) -> str:
    """What a step does."""
    total = sum(len(row) for row in answer["weights"])
    gone, limit = int(answer["pruned"]), float(answer["threshold"])
    return (
        f"The matrix has {total} weights.",
        "How large is each, without its sign?",
        f"In which order would they go? The smallest first: {_n(min(min(row) for row in answer['magnitudes']))}.",
        f"Half of {total} is {gone}: all up to |w| = {_n(limit)} go."
        if gone * 2 == total
        else f"{gone} of {total} go: all up to |w| = {_n(limit)}.",
        f"What is left: {total - gone} weights. The others are 0, and still stored.",
    )[step]


def cells(answer: Answer, step: int) -> list[list[Cell]]:
    """What stands in each place at a step."""
    name = {0: "weights", 1: "magnitudes", 2: "ranks", 3: "magnitudes", 4: "became"}[step]
    return [
        [
            Cell(
                (f"{int(value)}." if step == 2 else _n(float(value))),
                kept=None if step < 3 else bool(answer["kept"][r][c]),
                words=f"row {r + 1}, column {c + 1}: {_n(float(answer['weights'][r][c]))}",
            )
            for c, value in enumerate(row)
        ]
        for r, row in enumerate(answer[name])
    ]


def example_table(answer: Answer) -> Table:
    """Every weight, step by step."""
    rows = [
        [
            r + 1,
            c + 1,
            w,
            answer["magnitudes"][r][c],
            answer["ranks"][r][c],
            "yes" if answer["kept"][r][c] else "no",
            answer["became"][r][c],
        ]
        for r, row in enumerate(answer["weights"])
        for c, w in enumerate(row)
    ]
    return Table("worked_example", ["row", "column", "weight", "magnitude", "place", "kept", "becomes"], rows)
