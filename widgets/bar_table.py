"""A table whose rows have bars: names, lengths and figures in one place, readable without the bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from widgets.log_scale import log_scale
from widgets.view import View

Series = Literal[1, 2, 3, 4, 5, 6]
"""Colours of bars; 6 is the neutral one of what all others are measured against."""


@dataclass(frozen=True)
class Bar:
    """One bar of a row: its length in the table's unit, and its colour."""

    value: float
    series: Series


@dataclass(frozen=True)
class BarRow:
    """One row.

    Attributes:
        label: what the row stands for; `mono` for a token.
        bars: one below the other, thin if there are several.
        cells: texts beside the bars, as many as the head has after the label.
        kind: of the token ("accepted", "rejected", ...), which marks the row; "" for none.
        dots: further values on the same scale, as (value, what it is).
        note: a line of words in place of the bars.
    """

    label: str
    bars: Sequence[Bar] = ()
    cells: Sequence[str] = ()
    kind: str = ""
    mono: bool = False
    dots: Sequence[tuple[float, str]] = ()
    note: str = ""
    title: str = ""


@dataclass(frozen=True)
class Column:
    """A column of figures: its head, and the series that it belongs to (0: none)."""

    text: str
    series: int = 0


@dataclass(frozen=True)
class Line:
    """A line across all rows at `value`, with its name."""

    value: float
    text: str = ""


class BarTable(View):
    """Rows of bars on one scale that begins at 0, or of marks on a scale of powers of ten, which has ticks below it.

    Args:
        label: the table's name for those who cannot see it.
        first: the head of the label column.
        picture: its name among the exported pictures; "" for none.
    """

    module: ClassVar[str] = "bar_table"
    defaults: ClassVar[Mapping[str, Any]] = {
        "label": "",
        "first": "",
        "columns": [],
        "rows": [],
        "most": 1.0,
        "low": 0.0,
        "least": 0,
        "ticks": [],
        "line": None,
        "empty": "",
        "picture": "",
    }

    def __init__(self, *, label: str = "", first: str = "", empty: str = "", picture: str = "") -> None:
        super().__init__(label=label, first=first, empty=empty, picture=picture)

    def show(
        self,
        rows: Sequence[BarRow],
        columns: Sequence[Column],
        *,
        most: float = 0.0,
        log: Callable[[float], str] | None = None,
        least: int = 0,
        line: Line | None = None,
        label: str | None = None,
        empty: str = "",
    ) -> None:
        """Show rows.

        Args:
            most: what a bar of full length means; 0 takes the largest value.
            log: set the values on a scale of powers of ten, where no length begins at 0; it writes a tick. Values that
                are not above 0 stand at its start, and where all are, the scale stays that of bars.
            least: rows whose room is kept, so that what stands below does not move as rows come and go.
            line: a line across all rows.
            label: another name for the table.
            empty: said when there are no rows.
        """
        values = [b.value for r in rows for b in r.bars] + [d[0] for r in rows for d in r.dots]
        values += [line.value] if line else []
        top = most or max((v for v in values if v == v), default=1.0) or 1.0
        scale = log_scale(values) if log else None
        self._put(
            rows=[
                {
                    "label": r.label,
                    "bars": [[b.value, b.series] for b in r.bars],
                    "cells": list(r.cells),
                    "kind": r.kind,
                    "mono": r.mono,
                    "dots": [list(d) for d in r.dots],
                    "note": r.note,
                    "title": r.title,
                }
                for r in rows
            ],
            columns=[[c.text, c.series] for c in columns],
            most=scale.high if scale else top,
            least=least,
            low=scale.low if scale else 0.0,
            ticks=[[value, log(value)] for value in scale.ticks] if scale and log else [],
            line=[line.value, line.text] if line else None,
            label=self.state["label"] if label is None else label,
            empty=empty,
        )
