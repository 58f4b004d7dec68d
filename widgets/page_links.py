"""The way from one page to another: the index and the experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lab.experiments.registry import EXPERIMENTS
from lab.strings import Strings, in_language, strings
from widgets.view import View

INDEX = "index"
"""The page of cards."""


def page_name(name: str) -> str:
    """The file of a page, which is also its address beside the others."""
    return f"{name}.ipynb"


def page_links(here: str, words: Strings) -> list[dict[str, Any]]:
    """Label and address of all pages, the index first; `here` is true of the page of that name."""
    names = [(INDEX, words("page.overview")), *((name, words(f"{name}.label")) for name in EXPERIMENTS)]
    return [{"label": label, "href": page_name(name), "here": name == here} for name, label in names]


class PageLinks(View):
    """Links to all pages, the present one marked. Shown on pages of their own; a notebook has its file browser.

    Args:
        here: the present page's experiment.
        words: the page's language, which the links lead on in.
    """

    module: ClassVar[str] = "page_links"
    defaults: ClassVar[Mapping[str, Any]] = {"pages": [], "label": "", "lang": ""}

    def __init__(self, here: str, words: Strings | None = None) -> None:
        words = words or strings()
        pages = [{**p, "href": in_language(p["href"], words.language)} for p in page_links(here, words)]
        super().__init__(pages=pages, label=words("page.pages"), lang=words.language)
