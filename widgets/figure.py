"""The only home of numbers: each says where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from widgets.format import NOT_APPLICABLE, NOTHING
from widgets.view import View

BADGES = ("MEASURED", "DERIVED", "SIMULATED")
EMPTY = (None, "", NOTHING, NOT_APPLICABLE)
"""Values that are none."""


class FigureRow(View):
    """Figures side by side: value, unit, badge, a note. An empty value shows as "–", and without a badge: what is not
    there was neither measured nor derived."""

    module: ClassVar[str] = "figure"
    defaults: ClassVar[Mapping[str, Any]] = {"figures": [], "columns": 3}

    def __init__(self, *, columns: int = 3) -> None:
        super().__init__(columns=columns)

    def show(self, figures: Sequence[Mapping[str, Any]]) -> None:
        """Show `{"id", "value", "unit", "badge", "note", "title"}` of each; values are texts from `widgets.format`.

        Raises:
            ValueError: a badge that is not one of `BADGES`.
        """
        for figure in figures:
            if figure.get("badge") not in BADGES:
                raise ValueError(f"figure {figure.get('id')!r} says {figure.get('badge')!r}; say {' or '.join(BADGES)}")
        self._put(figures=[{**f, "badge": "" if f.get("value") in EMPTY else f["badge"]} for f in figures])
