"""A file from the visitor's disk, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from widgets.view import View, integer

MOST_NAME = 120


class FileChoice(View):
    """A button that opens the browser's choice of a file.

    Args:
        label: what the button does.
        accept: the ends of names that are offered: ".safetensors".
        limit: the largest file, bytes; a larger one is not sent, and refused if it is.
    """

    module: ClassVar[str] = "file_choice"
    defaults: ClassVar[Mapping[str, Any]] = {"label": "", "title": "", "accept": "", "limit": 0}

    def __init__(self, *, label: str = "Open a file", accept: str = "", limit: int = 0, title: str = "") -> None:
        self._on_file: Callable[[str, bytes], None] | None = None
        self._on_refused: Callable[[str, int], None] | None = None
        super().__init__(label=label, accept=accept, limit=limit, title=title)

    def on_file(self, callback: Callable[[str, bytes], None]) -> None:
        """Call `callback(name, data)` with a file that was chosen."""
        self._on_file = callback

    def on_refused(self, callback: Callable[[str, int], None]) -> None:
        """Call `callback(name, size)` with a file that is too large, its size in bytes."""
        self._on_refused = callback

    def _receive(self, widget: Any, content: Any, buffers: Any) -> None:
        super()._receive(widget, content, buffers)
        if not isinstance(content, dict) or not isinstance(content.get("name"), str):
            return
        name, limit = content["name"][:MOST_NAME], self.state["limit"]
        size = integer(content, "size")
        if content.get("type") == "file" and buffers:
            data = bytes(buffers[0])
            size = len(data)
            if size <= limit:
                if self._on_file is not None:
                    self._on_file(name, data)
                return
        if content.get("type") in ("file", "refused") and size is not None and self._on_refused is not None:
            self._on_refused(name, size)
