"""Step, play, scrub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from widgets.view import Message, View, integer


class Player(View):
    """Moves through a run's steps with buttons, a slider and the keyboard, never beyond what has arrived."""

    module: ClassVar[str] = "player"
    defaults: ClassVar[Mapping[str, Any]] = {
        "step": 0,
        "available": 0,
        "total": 0,
        "playing": False,
        "following": False,
        "unit": "token",
        "rate": 8,
    }

    def __init__(self, *, unit: str = "token", rate: float = 8) -> None:
        super().__init__(unit=unit, rate=rate)

    def show(
        self,
        *,
        step: int,
        available: int,
        total: int | None = None,
        playing: bool = False,
        following: bool = False,
        unit: str | None = None,
    ) -> None:
        """Show a position.

        Args:
            step: index of the step on screen, 0 the first.
            available: steps that have arrived.
            total: steps there will be; None if no more will come.
            playing: whether playback runs; it waits where the data ends.
            following: stay at the newest step as more arrive.
            unit: what a step is; None leaves it.
        """
        self._put(
            step=step,
            available=available,
            total=available if total is None else total,
            playing=playing,
            following=following,
            unit=unit or self.state["unit"],
        )

    def on_step(self, callback: Callable[[int], None]) -> None:
        """Call `callback(step)` with the index of the step that is to be shown."""

        def heard(message: Message) -> None:
            step = integer(message, "step")
            if step is not None and step >= 0:
                callback(step)

        self._listen("step", heard)

    def on_play(self, callback: Callable[[bool], None]) -> None:
        """Call `callback(playing)` when playback starts, is paused, or reaches the end."""
        self._listen("play", lambda message: callback(message.get("playing") is True))
