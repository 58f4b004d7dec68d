"""Lines of small matrices and signs: a sum worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from widgets.view import View


@dataclass(frozen=True)
class Matrix:
    """A matrix or a row in brackets.

    Attributes:
        sign: what stands before it, "+" or "="; they stay together where a line wraps.
        name: above it. mark: it is a result.
    """

    sign: str
    rows: Sequence[Sequence[str]]
    name: str = ""
    mark: bool = False


@dataclass(frozen=True)
class Line:
    """One line: its name, and matrices from left to right."""

    title: str
    parts: Sequence[Matrix]


class Equations(View):
    """Lines below one another. A line that is too long for the page wraps.

    Args:
        label: what it shows, for those who cannot see it.
        picture: its name among the exported pictures; "" for none.
    """

    module: ClassVar[str] = "equations"
    defaults: ClassVar[Mapping[str, Any]] = {"label": "", "lines": [], "picture": ""}

    def __init__(self, *, label: str = "", picture: str = "") -> None:
        super().__init__(label=label, picture=picture)

    def show(self, lines: Sequence[Line], label: str) -> None:
        """Show lines; `label` is all of them in words."""
        self._put(
            lines=[[line.title, [_part(part) for part in line.parts]] for line in lines],
            label=label,
        )


def _part(part: Matrix) -> dict[str, Any]:
    return {"sign": part.sign, "rows": [list(row) for row in part.rows], "name": part.name, "mark": part.mark}
