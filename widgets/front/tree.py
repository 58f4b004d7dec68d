"""Our own HTML as plain data, so that a widget builds it node by node and text enters the page as text alone."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

EMPTY = {"br", "input", "img", "hr", "link", "meta"}
"""Elements without an end tag."""
CASED = {"viewbox": "viewBox"}
"""Attributes of SVG that the parser writes in small letters."""


def tree_of(html: str) -> list[Any]:
    """The nodes of well-formed `html`: texts, and `[tag, {attribute: value}, children]`.

    Raises:
        ValueError: a tag is closed that is not open, or left open.
    """
    parser = _Nodes()
    parser.feed(html)
    parser.close()
    if len(parser.open) > 1:
        raise ValueError(f"<{parser.open[-1][0]}> is never closed")
    nodes: list[Any] = parser.open[0][2]
    return nodes


class _Nodes(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[list[Any]] = [["", {}, []]]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = [tag, {CASED.get(name, name): value or "" for name, value in attrs}, []]
        self.open[-1][2].append(node)
        if tag not in EMPTY:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1][0] != tag:
            raise ValueError(f"</{tag}> closes <{self.open[-1][0]}>")
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1][2].append(data)
