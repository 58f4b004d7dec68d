"""An error in words, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from widgets.view import View


class ErrorPanel(View):
    """Shown while there is an error and the visitor has not dismissed it."""

    module: ClassVar[str] = "error_panel"
    defaults: ClassVar[Mapping[str, Any]] = {"message": "", "remedy": "", "code": "", "open": False}

    def __init__(self) -> None:
        super().__init__()

    def show(self, message: str, remedy: str = "", code: str = "error") -> None:
        """Show an error: what happened, what to do, and its code of `lab.errors`."""
        self._put(message=message, remedy=remedy, code=code, open=True)

    def hide(self) -> None:
        """Take the error off the page."""
        self._put(message="", remedy="", code="", open=False)

    def on_dismiss(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when the visitor dismisses the error."""
        self._listen_plain("dismiss", callback)
