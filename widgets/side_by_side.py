"""Figures or settings of two runs in one table: A, B, and B against A."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from widgets.view import View


@dataclass(frozen=True)
class SideRow:
    """One row.

    Attributes:
        id: keeps the row's place while others come and go.
        a, b, against: as written.
        badge: where the figures come from; "" for none.
        shares: lengths of both bars in 0..1; None for none.
    """

    id: str
    name: str
    a: str
    b: str
    against: str = ""
    badge: str = ""
    shares: tuple[float | None, float | None] | None = None


class SideBySide(View):
    """A table of two columns A and B, each with its mark.

    Args:
        label: the table's name for those who cannot see it.
        first: the head of the names' column.
        against: the head of the column that sets B against A; "": no such column, no bars, no badges.
    """

    module: ClassVar[str] = "side_by_side"
    defaults: ClassVar[Mapping[str, Any]] = {"label": "", "first": "", "heads": ["A", "B"], "against": "", "rows": []}

    def __init__(self, *, label: str = "", first: str = "", against: str = "") -> None:
        super().__init__(label=label, first=first, against=against)

    def show(self, rows: Sequence[SideRow]) -> None:
        """Show these rows; none: nothing is there."""
        self._put(rows=[asdict(row) for row in rows])
