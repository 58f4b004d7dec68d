"""The table behind a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from widgets.view import View

MOST_ROWS = 2000


class Rows(Protocol):
    """What a table shows: its name, its head and its rows."""

    @property
    def name(self) -> str: ...

    @property
    def head(self) -> Sequence[str]: ...

    @property
    def rows(self) -> Sequence[Sequence[Any]]: ...


class DataTable(View):
    """A folded table; at most `MOST_ROWS` rows are sent, and the page says how many there are."""

    module: ClassVar[str] = "data_table"
    defaults: ClassVar[Mapping[str, Any]] = {"caption": "", "summary": "Table", "head": [], "rows": [], "note": ""}

    def __init__(self, *, caption: str = "", summary: str = "Table") -> None:
        super().__init__(caption=caption, summary=summary)

    def show(self, table: Rows, *, caption: str = "", note: str = "") -> None:
        """Show a table; its `caption` is its name in words unless one is given."""
        count = len(table.rows)
        if count > MOST_ROWS:
            note = f"The first {MOST_ROWS:,} of {count:,} rows; the export has all. {note}".strip()
        self._put(
            caption=caption or table.name.replace("_", " "), head=table.head, rows=table.rows[:MOST_ROWS], note=note
        )
