"""The page's link, which holds its whole state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from widgets.view import Message, View


class LinkButton(View):
    """Copies a link with the state behind the #, and tells what the address said when the page was opened.

    Args:
        follow: also keep the browser's address up to date, so that a reload shows the same.
    """

    module: ClassVar[str] = "link"
    defaults: ClassVar[Mapping[str, Any]] = {"query": {}, "follow": False}

    def __init__(self, *, follow: bool = False) -> None:
        super().__init__(follow=follow)

    def show(self, query: Mapping[str, Any]) -> None:
        """Take what the link will say: names and JSON values; a value of None is left out."""
        self._put(query=query)

    def on_link(self, callback: Callable[[dict[str, Any]], None]) -> None:
        """Call `callback(values)` when the page was opened or its address changed. Values are unchecked JSON."""

        def heard(message: Message) -> None:
            values = message.get("values")
            if isinstance(values, dict) and values:
                callback(values)

        self._listen("link", heard)
