"""The front-end files: what a widget sends to the page, and what an exported page contains.

A module imports nothing, so the few shared helpers of `dom.js` are put in front of it. Styles are
the look's variables, the shared parts and the widget's own, in this order.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"


@cache
def read(name: str) -> str:
    """The text of one file of `static/`."""
    return (STATIC / name).read_text(encoding="utf-8")


PARTS: dict[str, tuple[str, ...]] = {
    "bar_table": ("picture", "dom_picture"),
    "beam_shelf": ("token_text",),
    "beam_tree": ("token_text", "picture", "beam_layout", "beam_words", "beam_chips"),
    "controls": ("fields",),
    "equations": ("picture", "dom_picture"),
    "front": ("front_page",),
    "language_links": ("language",),
    "histogram_rows": ("picture", "dom_picture"),
    "mask_view": ("picture", "mask_draw"),
    "round_rows": ("picture", "dom_picture"),
    "small_matrix": ("picture", "dom_picture"),
    "theme_toggle": ("theme",),
    "token_strip": ("token_text",),
    "word_pairs": ("token_text",),
}
"""Files that belong to a module and stand before it."""
STYLES = {"front": ("page",)}
"""The same for style sheets: the index has a page's title and its chips, wherever it is shown."""


def esm(name: str) -> str:
    """The ES module of the widget `name`: its default export has `render({model, el})`."""
    return "\n".join(read(f"{part}.js") for part in ("dom", *PARTS.get(name, ()), name))


def css(name: str) -> str:
    """The style sheet of the widget `name`, whole in itself."""
    return "\n".join(read(f"{part}.css") for part in ("tokens", "base", *STYLES.get(name, ()), name))


def stand_in() -> str:
    """The ES module that draws a widget from its JSON state without a kernel."""
    return read("stand_in.js")


EXPORTED = "export default { render };"
"""The last line of every module."""


def classic(name: str) -> str:
    """The body of a function that gives back what the module `name` exports; `dom.js` stands around it."""
    parts = "\n".join(read(f"{part}.js") for part in (*PARTS.get(name, ()), name))
    return parts.replace(EXPORTED, "return { render };")


def classic_stand_in() -> str:
    """The stand-in for a script that is no module."""
    return stand_in().replace("export ", "")
