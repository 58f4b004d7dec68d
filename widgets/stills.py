"""Files of the packaged stills: the index and a poster of each recorded run, once in each language."""

from __future__ import annotations

import re
from pathlib import Path

from lab.strings import ENGLISH, in_language

FOLDER = Path(__file__).parent / "recordings"
_LINK = re.compile(r'href="(\w+\.ipynb)"')


def still_name(name: str, language: str) -> str:
    """The file of a page's still: "lora.html", "lora.de.html"."""
    return f"{name}.html" if language == ENGLISH else f"{name}.{language}.html"


def read_stills(language: str, folder: Path = FOLDER) -> dict[str, str]:
    """The stills of a language by page, with links that stay in it. Where it has none, the English one."""
    found = {}
    for english in folder.glob("*.html"):
        own = folder / still_name(english.stem, language)
        if "." not in english.stem:
            html = (own if own.is_file() else english).read_text(encoding="utf-8")
            found[english.stem] = _LINK.sub(lambda link: f'href="{in_language(link[1], language)}"', html)
    return found
