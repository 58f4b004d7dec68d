"""The way from one experiment's page to another's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lab.experiments.registry import EXPERIMENTS
from widgets.view import View


def page_name(experiment: str) -> str:
    """The file of an experiment's page, which is also its address beside the others."""
    return f"{experiment}.ipynb"


class PageLinks(View):
    """Links to all pages, the present one marked. Shown on pages of their own; a notebook has its file browser.

    Args:
        here: the present page's experiment.
    """

    module: ClassVar[str] = "page_links"
    defaults: ClassVar[Mapping[str, Any]] = {"pages": []}

    def __init__(self, here: str) -> None:
        pages = [{"label": e.label, "href": page_name(e.name), "here": e.name == here} for e in EXPERIMENTS.values()]
        super().__init__(pages=pages)
