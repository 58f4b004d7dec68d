"""The index page in a notebook: the same piece of HTML as the one that the pages' server shows without a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from lab.strings import default_language, known_language
from widgets.front.tree import tree_of
from widgets.page_links import INDEX
from widgets.stills import still_name
from widgets.view import View

FOLDER = Path(__file__).parents[1] / "recordings"


class FrontPage(View):
    """Cards and path, drawn from the packaged recordings by `widgets.make_recording`; a notebook needs no header.

    Args:
        language: such as "de"; None is the lab's own.

    Raises:
        BadInput: there is no such language.
    """

    module: ClassVar[str] = "front"
    defaults: ClassVar[Mapping[str, Any]] = {"nodes": [], "lang": ""}

    def __init__(self, language: str | None = None) -> None:
        lang = default_language() if language is None else known_language(language)
        _, _, rest = (FOLDER / still_name(INDEX, lang)).read_text(encoding="utf-8").partition("<main>")
        super().__init__(nodes=tree_of(rest.partition("</main>")[0]), lang=lang)
