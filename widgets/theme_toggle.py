"""A quiet button that switches the page between light and dark; nothing in Python depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lab.strings import Strings, strings
from widgets.view import View

WORDS = ("dark", "light", "theme")


class ThemeToggle(View):
    """Shown on pages of their own; inside JupyterLab its theme rules and the button hides.

    Args:
        words: the page's language.
    """

    module: ClassVar[str] = "theme_toggle"
    defaults: ClassVar[Mapping[str, Any]] = {"lang": "", "words": {}}

    def __init__(self, words: Strings | None = None) -> None:
        words = words or strings()
        super().__init__(lang=words.language, words=words.of("page", *WORDS))
