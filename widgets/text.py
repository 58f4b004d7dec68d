"""Words on the page that are no control: a title, a heading, a caption, a legend. Text is never HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from widgets.view import View


class Words(View):
    """Lines of text with fixed tags, set as text.

    Args:
        lines: (tag, text) pairs; tags are h1, h2, p or nav.
        css_class: where the page's CSS places it ("lab-title", "lab-heading", "lab-caption").
        lang: the language of the lines, where it is not English.
        rich: whether `backticks` mark code; never where a model's words may stand.
        to_lesson: words of a quiet link to the lesson, at the end of the last line where the lesson comes last.
    """

    module: ClassVar[str] = "words"
    defaults: ClassVar[Mapping[str, Any]] = {
        "lines": [],
        "css_class": "",
        "legend": [],
        "lang": "",
        "rich": False,
        "to_lesson": "",
    }

    def __init__(
        self, *lines: tuple[str, str], css_class: str, lang: str = "", rich: bool = False, to_lesson: str = ""
    ) -> None:
        super().__init__(lines=lines, css_class=css_class, lang=lang, rich=rich, to_lesson=to_lesson)

    def say(self, *lines: tuple[str, str]) -> None:
        """Replace the lines. The pump alone calls it once the page lives."""
        self._put(lines=lines)

    def legend(self, items: Sequence[tuple[str, str, bool]]) -> None:
        """Show a legend of (text, CSS variable of its colour, dashed)."""
        self._put(legend=items)
