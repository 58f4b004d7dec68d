"""Rounds of speculative decoding as rows, the newest on top."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from widgets.view import Message, View, integer

FEW = 8
MANY = 600
"""Rows that are sent while folded, and at most."""


class RoundRows(View):
    """One row a round: proposed tokens, the target's own, the time, the caches. Earlier rounds are folded.

    A token is named by its round and its row. In the state, `rounds` are those on screen, newest first; `total` is
    how many there are.
    """

    module: ClassVar[str] = "round_rows"
    defaults: ClassVar[Mapping[str, Any]] = {
        "rounds": [],
        "total": 0,
        "expanded": False,
        "most_ms": 0.0,
        "selected": None,
        "locked": None,
        "empty": "",
    }

    def __init__(self, *, empty: str = "") -> None:
        super().__init__(empty=empty)
        self.expanded = False
        self._fold: Callable[[bool], None] | None = None
        self._listen("expand", self._expand)

    def window(self, total: int, at: int | None = None) -> range:
        """The rounds to hand to `show`, of `total`: the newest, moved so that `at` is among them."""
        size = MANY if self.expanded else FEW
        last = total - 1
        if at is not None and 0 <= at <= last - size:
            last = min(last, at + size // 2)
        return range(last, max(-1, last - size), -1)

    def show(
        self,
        rounds: Sequence[Mapping[str, Any]],
        *,
        total: int,
        most_ms: float,
        selected: tuple[int, int] | None = None,
        locked: tuple[int, int] | None = None,
    ) -> None:
        """Show rounds.

        Args:
            rounds: `{"index", "tokens": [{"row", "text", "kind", "title"}], "source", "ms": [draft, verify, judge],
                "ms_title", "plain_ms" (or None), "caches": [[name, before, with, after]]}`, newest first.
            total: how many rounds there are.
            most_ms: what a time bar of full length means.
            selected, locked: (round, row) that is pointed at, and that a click holds.
        """
        self._put(
            rounds=list(rounds),
            total=total,
            most_ms=most_ms,
            selected=list(selected) if selected else None,
            locked=list(locked) if locked else None,
            expanded=self.expanded,
        )

    def on_hover(self, callback: Callable[[tuple[int, int] | None], None]) -> None:
        """Call `callback((round, row))` as the pointer or the focus moves, None when it leaves."""
        self._listen("hover", lambda message: callback(_spot(message)))

    def on_lock(self, callback: Callable[[tuple[int, int] | None], None]) -> None:
        """Call `callback((round, row))` when a token is clicked, None when the lock is taken off."""
        self._listen("lock", lambda message: callback(_spot(message)))

    def on_fold(self, callback: Callable[[bool], None]) -> None:
        """Call `callback(expanded)` when earlier rounds are opened or folded."""
        self._fold = callback

    def _expand(self, message: Message) -> None:
        self.expanded = message.get("expanded") is True
        if self._fold is not None:
            self._fold(self.expanded)


def _spot(message: Message) -> tuple[int, int] | None:
    at, row = integer(message, "round"), integer(message, "row")
    return (at, row) if at is not None and row is not None and at >= 0 and row >= 0 else None
