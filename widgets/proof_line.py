"""Whether a run is what it claims to be, in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from widgets.view import View

VERDICTS = ("pending", "equal", "tie", "different", "unproven", "none")


class ProofLine(View):
    """A symbol, words, and the figures behind them."""

    module: ClassVar[str] = "proof_line"
    defaults: ClassVar[Mapping[str, Any]] = {"verdict": "none", "text": "", "detail": [], "can_cancel": False}

    def __init__(self) -> None:
        super().__init__()

    def show(self, verdict: str, text: str, detail: Sequence[Sequence[str]] = (), *, can_cancel: bool = False) -> None:
        """Show a verdict of `VERDICTS`.

        Args:
            text: a sentence; `backticks` mark code.
            detail: rows of (name, value).
            can_cancel: offer to stop a pending check.

        Raises:
            ValueError: no such verdict.
        """
        if verdict not in VERDICTS:
            raise ValueError(f"no verdict {verdict!r}; there are {', '.join(VERDICTS)}")
        self._put(verdict=verdict, text=text, detail=[list(row) for row in detail], can_cancel=can_cancel)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when the check is to be stopped."""
        self._listen_plain("cancel", callback)
