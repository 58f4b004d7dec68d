"""The index page in a notebook: the same piece of HTML as the one that the pages' server shows without a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from widgets.front.tree import tree_of
from widgets.view import View

FILE = Path(__file__).parents[1] / "recordings" / "index.html"


class FrontPage(View):
    """Cards and path, drawn from the packaged recordings by `widgets.make_recording`; a notebook needs no header."""

    module: ClassVar[str] = "front"
    defaults: ClassVar[Mapping[str, Any]] = {"nodes": []}

    def __init__(self) -> None:
        _, _, rest = FILE.read_text(encoding="utf-8").partition("<main>")
        super().__init__(nodes=tree_of(rest.partition("</main>")[0]))
