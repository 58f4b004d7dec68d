"""The header's line: live or recorded, which model, and whether the kernel still answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from lab.strings import Strings, strings
from widgets.view import Message, View, integer

MODES = ("", "live", "recorded")
WORDS = ("live", "recorded", "live_is", "recorded_is", "kernel_ended", "reload")


class Heartbeat(View):
    """Answers the page's questions from the kernel's main thread; the page says so when nobody does.

    A page whose kernel ended gets the class `lab-dead` on its `.lab-page`, and every part that needs the
    kernel is made inert. Should the kernel answer again, both are taken back.
    """

    module: ClassVar[str] = "heartbeat"
    defaults: ClassVar[Mapping[str, Any]] = {
        "mode": "",
        "when": "",
        "model": "",
        "ended": "",
        "pace": {},
        "lang": "",
        "words": {},
    }

    def __init__(
        self, words: Strings | None = None, *, ended: str = "", pace: Mapping[str, float] | None = None
    ) -> None:
        self._shown: list[Callable[[], None]] = []
        words = words or strings()
        super().__init__(ended=ended, pace=pace or {}, lang=words.language, words=words.of("page", *WORDS))
        self._listen("ping", self._answer)

    def show(self, *, mode: str, when: str = "", model: str = "") -> None:
        """Show "live", "recorded" (with its date, ISO 8601, of which the day is shown) or neither.

        Raises:
            ValueError: no such mode.
        """
        if mode not in MODES:
            raise ValueError(f"no mode {mode!r}; there are live and recorded")
        self._put(mode=mode, when=when.partition("T")[0], model=model)

    def on_shown(self, callback: Callable[[], None]) -> None:
        """Call `callback()` each time a browser has drawn the page, all of whose widgets it then has."""
        self._shown.append(callback)

    def _answer(self, message: Message) -> None:
        number = integer(message, "n")
        self.send({"type": "pong", "n": number})
        if number == 1:
            for callback in self._shown:
                callback()
