"""A finding as a heading: what came of it, and whether that is good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from widgets.view import View

TONES = ("good", "bad", "even", "none", "pending")


class Verdict(View):
    """A heading with a mark, and lines of words below it."""

    module: ClassVar[str] = "verdict"
    defaults: ClassVar[Mapping[str, Any]] = {"tone": "pending", "text": "", "notes": []}

    def __init__(self) -> None:
        super().__init__()

    def show(self, tone: str, text: str, *notes: str) -> None:
        """Show a finding of a tone of `TONES`; without a text nothing is shown.

        Raises:
            ValueError: no such tone.
        """
        if tone not in TONES:
            raise ValueError(f"no tone {tone!r}; there are {', '.join(TONES)}")
        self._put(tone=tone, text=text, notes=[note for note in notes if note])
