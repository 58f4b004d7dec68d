"""Masks of one matrix as zoomable bitmaps, drawn in the page from packed bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import traitlets

from widgets.pruning.mask_bits import MaskBits
from widgets.pruning.method_marks import mark_of
from widgets.view import Message, View, integer

MOST_WINDOW = 256
"""Weights on a side of the largest part whose values can be asked."""


@dataclass(frozen=True)
class Window:
    """The part of the matrix on screen: its first weight, its size, pixels a weight; `whole`: not zoomed."""

    row: int
    column: int
    rows: int
    columns: int
    scale: float
    whole: bool

    @property
    def small(self) -> bool:
        """Whether its values can be asked."""
        return self.rows <= MOST_WINDOW and self.columns <= MOST_WINDOW


@dataclass(frozen=True)
class Values:
    """Weights of a part of the matrix.

    Attributes:
        row, column, rows, columns: where it lies.
        bytes: base64 of int8, row by row: 127 stands for `scale`, the largest |w| there.
    """

    row: int
    column: int
    rows: int
    columns: int
    bytes: str
    scale: float


class MaskView(View):
    """One mask alone, or two with their differences, all zoomed together; a strip beside each tells its rows.

    The bits are a trait of their own, so that what else changes does not send them again.
    """

    module: ClassVar[str] = "mask_view"
    defaults: ClassVar[Mapping[str, Any]] = {
        "label": "",
        "rows": 0,
        "columns": 0,
        "names": {},
        "colours": {},
        "panels": [],
        "groups": [],
        "values": None,
        "colour": "mask",
        "at": None,
        "empty": "",
        "picture": "",
    }
    changing: ClassVar[tuple[str, ...]] = ("state", "bits")
    bits = traitlets.Dict().tag(sync=True)

    def __init__(self, *, label: str = "", picture: str = "") -> None:
        super().__init__(label=label, picture=picture)

    def show(
        self,
        first: MaskBits | None,
        second: MaskBits | None = None,
        *,
        groups: Sequence[tuple[int, int, int, int, int]] = (),
        values: Values | None = None,
        colour: str = "mask",
        at: tuple[int, int, float] | None = None,
        label: str | None = None,
        empty: str = "",
    ) -> None:
        """Show one mask, or two and where they differ.

        Args:
            groups: (row, column, rows, columns, kept) framed in the first.
            values: of kept weights in the part on screen; drawn where `colour` is "value".
            at: (first row, first column, pixels a weight) to go to; the page goes there once for each new one.
            empty: said where there is no mask.
        """
        masks = {"first": first, "second": second} if first else {}
        bits = {name: mask.text for name, mask in masks.items() if mask}
        if self.bits != bits:
            self.bits = bits
        self._put(
            label=self.state["label"] if label is None else label,
            rows=first.rows if first else 0,
            columns=first.columns if first else 0,
            names={name: mask.label for name, mask in masks.items() if mask},
            colours={name: mark_of(mask.method).colour for name, mask in masks.items() if mask},
            panels=_panels(first, second) if first else [],
            groups=[list(group) for group in groups],
            values=vars(values) if values else None,
            colour=colour,
            at=list(at) if at else None,
            empty=empty,
        )

    def on_window(self, callback: Callable[[Window], None]) -> None:
        """Call `callback` with the part on screen when it has come to rest."""

        def heard(message: Message) -> None:
            found = [integer(message, key) for key in ("row", "column", "rows", "columns")]
            row, column, rows, columns = (-1 if value is None else value for value in found)
            scale = message.get("scale")
            inside = row >= 0 and column >= 0 and rows > 0 and columns > 0
            inside = inside and row + rows <= self.state["rows"] and column + columns <= self.state["columns"]
            if inside and isinstance(scale, int | float) and 0 < scale < 1000:
                callback(Window(row, column, rows, columns, float(scale), message.get("whole") is True))

        self._listen("window", heard)


def _panels(first: MaskBits, second: MaskBits | None) -> list[dict[str, Any]]:
    def one(name: str, mask: MaskBits, marked: bool) -> dict[str, Any]:
        words = f"{mask.label}: {mask.rows:,} rows by {mask.columns:,} columns, {mask.kept:,} weights kept"
        return {"id": name, "title": mask.label, "first": name, "second": "", "words": words, "marked": marked}

    if second is None:
        return [one("first", first, marked=True)]
    words = f"Where {first.label} and {second.label} differ"
    both = {"id": "both", "title": "where they differ", "first": "first", "second": "second", "words": words}
    return [one("first", first, marked=True), one("second", second, marked=False), {**both, "marked": False}]
