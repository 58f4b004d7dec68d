"""Two rows of tokens on one axis, or three: the same place of all texts stands one above the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from widgets.view import Message, View, integer

LIMIT = 300


@dataclass(frozen=True)
class Word:
    """A token of one row: its text, and its probability as it is to be written."""

    text: str
    p: str


@dataclass(frozen=True)
class Pair:
    """One place of the axis.

    Attributes:
        upper, lower: the tokens of both rows; None where a row has none (yet).
        same: whether both are the same token; None while one of them is missing.
        weight: how far both models are apart here, 0..1; None if not known.
        title: all of it in words.
        third: the token of a third row, for views that show one; third_same: whether it is the upper one's.
    """

    upper: Word | None
    lower: Word | None
    same: bool | None
    weight: float | None
    title: str
    third: Word | None = None
    third_same: bool | None = None


class WordPairs(View):
    """Pairs of tokens, wrapped like a text; hover links, click locks. Token text is text.

    Args:
        rows: 2, or 3 where `Pair.third` is shown below the others.
    """

    module: ClassVar[str] = "word_pairs"
    defaults: ClassVar[dict[str, Any]] = {
        "pairs": [],
        "start": 0,
        "selected": None,
        "locked": None,
        "label": "",
        "empty": "",
        "rows": 2,
    }

    def __init__(self, *, label: str = "Two rows of tokens", empty: str = "No tokens yet.", rows: int = 2) -> None:
        super().__init__(label=label, empty=empty, rows=rows)
        self._count = 0

    def show(self, pairs: Sequence[Pair], *, selected: int | None = None, locked: int | None = None) -> None:
        """Show pairs, the newest `LIMIT` of them.

        Args:
            selected: the place that other pictures speak of.
            locked: the place that a click holds.
        """
        self._count = len(pairs)
        start = max(0, len(pairs) - LIMIT)
        three = self.state["rows"] == 3
        self._put(
            pairs=[
                [
                    [p.upper.text, p.upper.p] if p.upper else None,
                    [p.lower.text, p.lower.p] if p.lower else None,
                    p.same,
                    None if p.weight is None else round(p.weight, 3),
                    p.title,
                    *([[p.third.text, p.third.p] if p.third else None, p.third_same] if three else []),
                ]
                for p in pairs[start:]
            ],
            start=start,
            selected=selected,
            locked=locked,
        )

    def on_hover(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(place)` when the pointer or the focus enters a pair, None when it leaves all."""
        self._listen("hover", lambda message: callback(self._place(message)))

    def on_lock(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(place)` when a click holds a pair, None when it lets go."""
        self._listen("lock", lambda message: callback(self._place(message)))

    def _place(self, message: Message) -> int | None:
        index = integer(message, "index")
        return index if index is not None and 0 <= index < self._count else None
