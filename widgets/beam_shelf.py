"""The shelf of a beam search: its finished texts, each with the formula of its score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from widgets.view import Message, View, integer


class BeamShelf(View):
    """Rows, best first: rank, text, formula. A dashed row shows what a running text could still reach."""

    module: ClassVar[str] = "beam_shelf"
    defaults: ClassVar[Mapping[str, Any]] = {
        "rows": [],
        "pushed": [],
        "bound": None,
        "places": 0,
        "over": False,
        "pointed": None,
        "locked": None,
        "empty": "",
    }

    def __init__(self, *, empty: str = "") -> None:
        super().__init__(empty=empty)

    def show(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        places: int,
        over: bool,
        pushed: Sequence[Mapping[str, Any]] = (),
        bound: Mapping[str, Any] | None = None,
        pointed: int | None = None,
        locked: int | None = None,
    ) -> None:
        """Show finished texts, best first.

        Args:
            rows: `{"node", "text", "formula", "is_end"}`; `node` is sent back by hover and click.
            places: how many texts the shelf holds at most.
            over: the search has stopped, so that the first row has won.
            pushed: texts that better ones pushed off, in the same form, shown grey below.
            bound: `{"text", "above"}`: the best score a running text could still reach, and how many rows it beats
                it not: the dashed row stands below the first `above` rows.
            pointed, locked: nodes of rows to mark.
        """
        self._put(rows=rows, pushed=pushed, places=places, over=over, bound=bound, pointed=pointed, locked=locked)

    def on_hover(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(node)` as the pointer or the focus moves over the rows, None when it leaves."""
        self._listen("hover", lambda message: callback(self._node(message)))

    def on_lock(self, callback: Callable[[int | None], None]) -> None:
        """Call `callback(node)` when a row is clicked, None when it is clicked again."""
        self._listen("lock", lambda message: callback(self._node(message)))

    def _node(self, message: Message) -> int | None:
        node = integer(message, "node")
        rows = (*self.state["rows"], *self.state["pushed"])
        return node if node is not None and any(row["node"] == node for row in rows) else None
