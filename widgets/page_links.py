"""The way from one page to another: the index and the experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lab.experiments.registry import EXPERIMENTS
from widgets.view import View

INDEX = "index"
"""The page of cards."""


def page_name(name: str) -> str:
    """The file of a page, which is also its address beside the others."""
    return f"{name}.ipynb"


def page_links(here: str) -> list[dict[str, Any]]:
    """Label and address of all pages, the index first; `here` is true of the page of that name."""
    names = [(INDEX, "Overview"), *((e.name, e.label) for e in EXPERIMENTS.values())]
    return [{"label": label, "href": page_name(name), "here": name == here} for name, label in names]


class PageLinks(View):
    """Links to all pages, the present one marked. Shown on pages of their own; a notebook has its file browser.

    Args:
        here: the present page's experiment.
    """

    module: ClassVar[str] = "page_links"
    defaults: ClassVar[Mapping[str, Any]] = {"pages": []}

    def __init__(self, here: str) -> None:
        super().__init__(pages=page_links(here))
