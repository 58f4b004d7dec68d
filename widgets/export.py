"""A menu of files to save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from widgets.view import Message, View


class ExportMenu(View):
    """Offers files. Pictures are drawn by the page, from its Bokeh plots; all else is made here and delivered.

    Args:
        prefix: begins the names of the pictures' files.
    """

    module: ClassVar[str] = "export"
    defaults: ClassVar[Mapping[str, Any]] = {"items": [], "prefix": "picture"}

    def __init__(self, *, prefix: str = "picture") -> None:
        super().__init__(prefix=prefix)

    def show(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Offer `{"id", "label"}`, optionally with `note`, and `disabled` (a reason, or True).

        The ids "png" and "svg", and any item with `plot` (a plot's name, or "*" for all), are saved by the page.
        """
        self._put(items=items)

    def on_export(self, callback: Callable[[str], None]) -> None:
        """Call `callback(id)` when an item is chosen; answer with `deliver` or `refuse`."""

        def heard(message: Message) -> None:
            if any(item["id"] == message.get("id") and not item.get("disabled") for item in self.state["items"]):
                callback(str(message["id"]))

        self._listen("export", heard)

    def deliver(self, name: str, data: bytes, mime: str = "application/octet-stream") -> None:
        """Give the page a file of this name, to save."""
        self.send({"type": "file", "name": name, "mime": mime}, buffers=[data])

    def refuse(self, text: str) -> None:
        """Say beside the menu why there is no file."""
        self.send({"type": "refused", "text": text})
