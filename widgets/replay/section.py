"""A method column by column, with a scrubber of its own: weight, error, what later columns take over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import ipywidgets as ipw

from widgets.choice import Choice, Slider, whole_slider
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.player import Player
from widgets.replay.frames import Frame, Replayed
from widgets.replay.plots import DOWN, UP, ReplayMap, RowPlot
from widgets.run_state import TaskState
from widgets.section import Section, heading, section
from widgets.text import Words

S = TypeVar("S", bound=TaskState)
F = TypeVar("F", bound=Replayed)


class ReplaySection(Section[S], Generic[S, F]):
    """A map of how far weights moved, one row of them, and the step in words.

    A page's own class sets the first three and says `replays`, `title_of`, `make`, `told`, `caption` and `step_table`;
    pictures of its own stand below the row (`more`).

    Attributes:
        title, intro: of the heading. done: what a column that was taken is: "quantized".
        step: the column on screen; None begins where both sides can be seen.
        row: which of the rows shown is drawn below the map.
    """

    title: ClassVar[str]
    intro: ClassVar[str]
    done: ClassVar[str]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.step: int | None = None
        self.row = 0
        self._playing = False
        self._frames: tuple[Any, F | None] = (None, None)
        self._choice = Choice(desk, "Matrix")
        self._player = Player(unit="column", rate=5)
        self._player.on_step(self._stepped)
        self._player.on_play(self._played)
        self._told = Words(css_class="lab-answer")
        self._map, self._line = ReplayMap(), RowPlot()
        self._map_legend = Words(css_class="lab-caption")
        self._map_legend.legend([("moved up", UP, False), ("moved down (hatched)", DOWN, False)])
        self._slider = Slider(desk, "row", whole_slider("Marked row", 7), self._take_row)
        self._row_legend = Words(css_class="lab-caption")
        self._row_legend.legend(
            [
                (self.done, "--lab-series-3", False),
                ("not yet", UP, False),
                ("where it was at first", "--lab-muted", False),
            ]
        )
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all steps")
        self.widget = section(
            heading(self.title, self.intro),
            self._choice.widget,
            self._player,
            self._told,
            self._map,
            self._map_legend,
            self._slider.widget,
            self._line,
            self._row_legend,
            *self.more(),
            self._caption,
            self._table,
        )

    def more(self) -> Sequence[ipw.Widget]:
        """Widgets below the row, made once."""
        return ()

    @classmethod
    def replays(cls, state: S) -> Sequence[Any]:
        """The events of the run."""
        raise NotImplementedError

    def make(self, replay: Any) -> F:
        """The frames of one.

        Raises:
            ValueError: arrays whose shapes do not fit one another.
        """
        raise NotImplementedError

    def told(self, frames: F, frame: Frame) -> Sequence[str]:
        """What the step did, in sentences; `row` is the marked one."""
        raise NotImplementedError

    def caption(self, replay: Any) -> str:
        """What was measured, and how."""
        raise NotImplementedError

    def step_table(self, frames: F) -> Table:
        """One row a step, for the marked row of weights."""
        raise NotImplementedError

    def draw(self, frames: F, frame: Frame) -> None:
        """Draw what `more` made."""

    @classmethod
    def present(cls, state: S) -> bool:
        return bool(cls.replays(state))

    def reset(self) -> None:
        self.step, self._playing, self._frames = None, False, (None, None)

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

    def frames(self, replay: Any) -> F | None:
        """The frames of a replay, made once; None where its arrays do not fit."""
        if self._frames[0] is not replay:
            try:
                self._frames = (replay, self.make(replay))
            except ValueError:
                self._frames = (replay, None)
        return self._frames[1]

    def render(self, state: S, upto: int, *, live: bool) -> None:
        del upto
        replays = self.replays(state)
        if not replays:
            return
        replay = replays[self._choice.show([f"layer {r.layer} {r.projection}" for r in replays])]
        frames = self.frames(replay)
        if frames is None or not frames.steps or not frames.rows:
            self._told.say(("p", "This replay cannot be drawn: its arrays do not fit one another."))
            return
        step = min(frames.steps // 3 if self.step is None else self.step, frames.steps - 1)
        self.row = min(self.row, len(frames.rows) - 1)
        frame = frames.at(step)
        self._player.show(step=step, available=frames.steps, playing=self._playing, unit="column")
        self._told.say(*(("p", words) for words in self.told(frames, frame)))
        self._map.show(frames, frame, self.row)
        self._slider.show(whole_slider("Marked row", len(frames.rows) - 1), self.row)
        self._line.show(frames, frame, self.row)
        self.draw(frames, frame)
        self._caption.say(("p", self.caption(replay)))
        if not live:
            self._table.show(self.step_table(frames))

    def tables(self, state: S) -> Sequence[Table]:
        replays = self.replays(state)
        if not replays:
            return ()
        frames = self.frames(replays[min(self._choice.index, len(replays) - 1)])
        return (self.step_table(frames),) if frames and frames.rows else ()

    def link(self) -> dict[str, Any]:
        return {"column": None if self.step is None else self.step + 1, "row_drawn": self.row or None}

    def restore(self, settings: dict[str, Any]) -> None:
        column, row = settings.get("column"), settings.get("row_drawn")
        if isinstance(column, int) and not isinstance(column, bool) and 0 < column < 100_000:
            self.step = column - 1
        if isinstance(row, int) and not isinstance(row, bool) and 0 <= row < 100_000:
            self.row = row
