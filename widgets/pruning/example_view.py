"""A small matrix in brackets: a value in each place, kept or pruned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from widgets.view import View


@dataclass(frozen=True)
class Cell:
    """One place: its text, whether it is kept (None: not decided), and what it is in words."""

    text: str
    kept: bool | None
    words: str


class ExampleView(View):
    """Kept places have a tick, pruned ones are struck."""

    module: ClassVar[str] = "small_matrix"
    defaults: ClassVar[Mapping[str, Any]] = {"label": "", "rows": [], "picture": ""}

    def __init__(self, *, label: str = "", picture: str = "") -> None:
        super().__init__(label=label, picture=picture)

    def show(self, rows: Sequence[Sequence[Cell]], label: str) -> None:
        """Show a matrix; `label` says what it is for those who cannot see it."""
        self._put(rows=[[[c.text, c.kept, c.words] for c in row] for row in rows], label=label)
