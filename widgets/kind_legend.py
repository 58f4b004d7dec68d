"""What the marks on token chips mean, and whether the dropped ones are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from widgets.view import Message, View


class KindLegend(View):
    """The marks with their words, and a switch for the tokens that do not stand."""

    module: ClassVar[str] = "kind_legend"
    defaults: ClassVar[Mapping[str, Any]] = {"dropped": True, "counts": {}}

    def __init__(self) -> None:
        super().__init__()

    def show(self, counts: Mapping[str, int], *, dropped: bool) -> None:
        """Show how many tokens there are of each kind.

        Args:
            dropped: whether rejected and never judged tokens are on screen.
        """
        self._put(counts=counts, dropped=dropped)

    def on_dropped(self, callback: Callable[[bool], None]) -> None:
        """Call `callback(dropped)` when the switch is used."""

        def heard(message: Message) -> None:
            if isinstance(message.get("dropped"), bool):
                callback(message["dropped"])

        self._listen("dropped", heard)
