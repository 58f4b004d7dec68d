"""The lesson beside the picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from lab.strings import Strings, strings
from widgets.view import Message, View, integer

WORDS = ("panel", "show", "show_label", "fold", "fold_label", "choices", "worked", "try_elsewhere")


class Lesson(View):
    """Sections of words, formulas, a worked table, a question and presets to start; can be folded.

    Args:
        words: the page's language.
        starts: whether presets can be started from here; else the lesson says that they could in a running lab.
    """

    module: ClassVar[str] = "lesson"
    defaults: ClassVar[Mapping[str, Any]] = {"sections": [], "folded": False, "starts": True, "lang": "", "words": {}}

    def __init__(self, words: Strings | None = None, *, folded: bool = False, starts: bool = True) -> None:
        words = words or strings()
        super().__init__(folded=folded, starts=starts, lang=words.language, words=words.of("lesson", *WORDS))
        self._listen("fold", self._fold)

    def show(self, sections: Sequence[Mapping[str, Any]]) -> None:
        """Show sections, each with some of `title`, `paragraphs` (texts; `backticks` mark code), `math` (a text or
        several), `table` (`head` and `rows` of texts) and `question` (`text`, `choices`, `answer`: the index of the
        right one or None, `reply`: shown after any choice, `chosen`: set from here) and `tries` (each a `preset`, its
        index in the experiment's, its `label`, and a `note`: what to look at).
        """
        self._put(sections=sections)

    def on_answer(self, callback: Callable[[int, int], None]) -> None:
        """Call `callback(section, choice)`, both indices, when a question is answered."""

        def heard(message: Message) -> None:
            section, choice = integer(message, "section"), integer(message, "choice")
            if section is not None and choice is not None:
                callback(section, choice)

        self._listen("answer", heard)

    def on_try(self, callback: Callable[[int], None]) -> None:
        """Call `callback(index)` when a preset is to be started; only those that a section offers."""

        def heard(message: Message) -> None:
            preset = integer(message, "preset")
            offered = {item["preset"] for section in self.state["sections"] for item in section.get("tries", ())}
            if preset is not None and preset in offered and self.state["starts"]:
                callback(preset)

        self._listen("try", heard)

    def on_fold(self, callback: Callable[[bool], None]) -> None:
        """Call `callback(folded)` when the lesson is folded or opened."""
        self._listen("fold", lambda message: callback(message.get("folded") is True))

    def _fold(self, message: Message) -> None:
        self._put(folded=message.get("folded") is True)
