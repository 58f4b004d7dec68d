"""Quiet links to the same page in the other languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lab.strings import Strings, language_links
from widgets.view import View


class LanguageLinks(View):
    """Shown on pages of their own; in a notebook the language is an argument, and they hide.

    Args:
        words: the page's language, which is not among the links.
    """

    module: ClassVar[str] = "language_links"
    defaults: ClassVar[Mapping[str, Any]] = {"links": [], "label": "", "lang": ""}

    def __init__(self, words: Strings) -> None:
        super().__init__(links=language_links(words.language), label=words("page.language"), lang=words.language)
