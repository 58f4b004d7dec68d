"""Histograms one below the other on one axis, each with its figures above it: small multiples as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from widgets.view import Message, View, integer


@dataclass(frozen=True)
class Dot:
    """One value marked below a histogram: where it stands, and what it is."""

    x: float
    title: str


@dataclass(frozen=True)
class HistogramRow:
    """One histogram.

    Attributes:
        id: names it in messages.
        label: for a person; `note` beside it, smaller.
        counts: of bins of equal width between the ends of the table's axis; below, above: beyond these.
        bound: dashed lines stand at minus and plus this; None for none.
        most: solid ticks stand at minus and plus this; None for none.
        cells: its figures as texts, one for each of the table's heads.
        dots: single values that can be clicked.
    """

    id: str
    label: str
    counts: Sequence[int]
    cells: Sequence[str]
    note: str = ""
    below: int = 0
    above: int = 0
    bound: float | None = None
    most: float | None = None
    dots: Sequence[Dot] = field(default_factory=tuple)


class HistogramRows(View):
    """All rows have one horizontal axis, from `low` to `high`, and one vertical one: equal areas are equal counts.

    A bin that would dwarf all others is cut, and its share is written beside it.

    Args:
        label: the table's name for those who cannot see it.
        axis: what the horizontal axis counts.
        picture: its name among the exported pictures.
    """

    module: ClassVar[str] = "histogram_rows"
    defaults: ClassVar[Mapping[str, Any]] = {
        "label": "",
        "axis": "",
        "first": "",
        "heads": [],
        "rows": [],
        "low": -1.0,
        "high": 1.0,
        "cap": 1.0,
        "log": False,
        "selected": "",
        "locked": None,
        "waiting": False,
        "empty": "",
        "picture": "",
    }

    def __init__(self, *, label: str = "", axis: str = "", first: str = "", picture: str = "") -> None:
        super().__init__(label=label, axis=axis, first=first, picture=picture)

    def show(
        self,
        rows: Sequence[HistogramRow],
        heads: Sequence[tuple[str, str]],
        *,
        low: float,
        high: float,
        log: bool = False,
        selected: str = "",
        locked: tuple[str, int] | None = None,
        waiting: bool = False,
        label: str | None = None,
        empty: str = "",
    ) -> None:
        """Show rows.

        Args:
            heads: (text, what it means) of each column of figures.
            log: heights are logarithms of counts.
            selected: the row that is emphasized.
            locked: (row, dot) that a click holds.
            waiting: the rows are being replaced.
            empty: said when there are no rows.
        """
        self._put(
            rows=[
                {
                    "id": r.id,
                    "label": r.label,
                    "note": r.note,
                    "counts": [int(c) for c in r.counts],
                    "below": r.below,
                    "above": r.above,
                    "bound": r.bound,
                    "most": r.most,
                    "cells": list(r.cells),
                    "dots": [[d.x, d.title] for d in r.dots],
                }
                for r in rows
            ],
            heads=[list(head) for head in heads],
            low=low,
            high=high,
            cap=_cap([r.counts for r in rows], 2.0 if log or high <= low else -low / (high - low)),
            log=log,
            selected=selected,
            locked=list(locked) if locked else None,
            waiting=waiting,
            label=self.state["label"] if label is None else label,
            empty=empty,
        )

    def on_row(self, callback: Callable[[str], None]) -> None:
        """Call `callback(id)` when a row is chosen."""

        def heard(message: Message) -> None:
            if any(row["id"] == message.get("id") for row in self.state["rows"]):
                callback(str(message["id"]))

        self._listen("row", heard)

    def on_dot(self, callback: Callable[[str, int], None]) -> None:
        """Call `callback(id, index)` when a marked value is clicked."""

        def heard(message: Message) -> None:
            row = next((r for r in self.state["rows"] if r["id"] == message.get("id")), None)
            index = integer(message, "index")
            if row is not None and index is not None and 0 <= index < len(row["dots"]):
                callback(str(row["id"]), index)

        self._listen("dot", heard)


def _cap(counts: Sequence[Sequence[int]], zero: float) -> float:
    """What the full height of a row means: all bins but those that would dwarf the others.

    The bins of no error alone are left out, unless there is nothing else.

    Args:
        zero: where no error lies between the ends of the axis, 0..1.
    """
    rest = [c for row in counts for i, c in enumerate(row) if i != int(zero * len(row))]
    most = max(rest, default=0)
    return 1.35 * most if most else max((c for row in counts for c in row), default=1) or 1.0
