"""A small form above a picture: which of several matrices, and sliders of the picture's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from widgets.controls import Controls
from widgets.experiment import Desk
from widgets.shown import show_if


class Choice:
    """One choice among things that are told by the run; hidden where there is only one.

    Attributes:
        index: which is shown. It stays within what is there.
    """

    def __init__(self, desk: Desk, title: str) -> None:
        self._desk = desk
        self._title = title
        self.index = 0
        self.widget = Controls(schema={"properties": {}})
        self.widget.add_class("lab-inline")
        show_if(False, self.widget)
        self.widget.on_values(self._chosen)

    def _chosen(self, values: dict[str, Any]) -> None:
        chosen = values.get("which")
        if isinstance(chosen, str) and chosen.isdecimal():
            with self._desk.lock:
                self.index = int(chosen)
            self._desk.touch()

    def show(self, names: Sequence[str]) -> int:
        """Offer `names`; gives back the index that is shown."""
        self.index = max(0, min(self.index, len(names) - 1))
        show_if(len(names) > 1, self.widget)
        if len(names) < 2:
            return self.index
        field = {
            "type": "string",
            "title": self._title,
            "enum": [str(i) for i in range(len(names))],
            "labels": list(names),
            "default": "0",
            "hint": "segmented" if len(names) <= 4 and max(map(len, names)) <= 22 else "select",
            "group": "main",
        }
        self.widget.update(schema={"properties": {"which": field}}, values={"which": str(self.index)})
        return self.index


class Slider:
    """One slider of a picture's own; its value is the section's, never the run's."""

    def __init__(self, desk: Desk, name: str, field: Mapping[str, Any], take: Callable[[float], None]) -> None:
        self._desk = desk
        self._name = name
        self._take = take
        self.widget = Controls(schema={"properties": {name: dict(field)}}, values={name: field.get("default", 0)})
        self.widget.add_class("lab-inline")
        self.widget.on_values(self._moved)

    def _moved(self, values: dict[str, Any]) -> None:
        value = values.get(self._name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            with self._desk.lock:
                self._take(value)
            self._desk.touch()

    def show(self, field: Mapping[str, Any], value: float) -> None:
        """Set its limits and its value."""
        self.widget.update(schema={"properties": {self._name: dict(field)}}, values={self._name: value})


def whole_slider(title: str, most: int, *, least: int = 0, unit: str = "") -> dict[str, Any]:
    """The field of a slider of whole numbers."""
    field = {"type": "integer", "title": title, "minimum": least, "maximum": max(most, least), "default": least}
    return {**field, "hint": "slider", "group": "main", **({"unit": unit} if unit else {})}


def float_slider(title: str, low: float, high: float, step: float, default: float) -> dict[str, Any]:
    """The field of a slider of numbers."""
    field = {"type": "number", "title": title, "minimum": low, "maximum": high, "default": default, "step": step}
    return {**field, "hint": "slider", "group": "main"}
