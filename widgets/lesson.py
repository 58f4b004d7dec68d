"""The lesson beside the picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from widgets.view import Message, View, integer


class Lesson(View):
    """Sections of words, formulas, a worked table and a question; can be folded."""

    module: ClassVar[str] = "lesson"
    defaults: ClassVar[Mapping[str, Any]] = {"sections": [], "folded": False}

    def __init__(self, *, folded: bool = False) -> None:
        super().__init__(folded=folded)
        self._listen("fold", self._fold)

    def show(self, sections: Sequence[Mapping[str, Any]]) -> None:
        """Show sections, each with some of `title`, `paragraphs` (texts; `backticks` mark code), `math` (a text or
        several), `table` (`head` and `rows` of texts) and `question` (`text`, `choices`, `answer`: the index of the
        right one or None, `reply`: shown after any choice, `chosen`: set from here).
        """
        self._put(sections=sections)

    def on_answer(self, callback: Callable[[int, int], None]) -> None:
        """Call `callback(section, choice)`, both indices, when a question is answered."""

        def heard(message: Message) -> None:
            section, choice = integer(message, "section"), integer(message, "choice")
            if section is not None and choice is not None:
                callback(section, choice)

        self._listen("answer", heard)

    def on_fold(self, callback: Callable[[bool], None]) -> None:
        """Call `callback(folded)` when the lesson is folded or opened."""
        self._listen("fold", lambda message: callback(message.get("folded") is True))

    def _fold(self, message: Message) -> None:
        self._put(folded=message.get("folded") is True)
