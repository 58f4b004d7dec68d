"""What if the model kept less, or more? Curves by formula, marked DERIVED, live as the sliders move."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw

from widgets.controls import Controls
from widgets.experiment import Desk
from widgets.format import format_bytes
from widgets.kv_cache.what_if_plot import CURVES, SERIES, WhatIfPlot
from widgets.text import Words

GROUPS = {"heads": ("model", "heads", "window"), "dtype": ("model", "dtype"), "known": ("model", "known")}
DEFAULTS: dict[str, Any] = {"compare": "heads", "window": 1024, "batch": 1}


class WhatIfSection:
    """Heading, sliders, curves, legend. Its values are part of the link."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.values = dict(DEFAULTS)
        self._answers: dict[tuple[int, int], dict[str, Any]] = {}
        self._shown: dict[str, Any] | None = None
        self._drawn: tuple[int, str] | None = None
        self._why = ""
        self._controls = Controls(schema=_SCHEMA, values=self.values)
        self._controls.on_values(self._chosen)
        self._controls.add_class("lab-inline")
        self._plot = WhatIfPlot()
        self._legend = Words(css_class="lab-caption")
        heading = Words(
            ("h2", "What if?"),
            ("p", "The same model with another cache, and known models, against the memory that is free here."),
            css_class="lab-heading",
        )
        self.widget = ipw.VBox([heading, self._controls, self._plot, self._legend])
        self.widget.add_class("lab-section")

    def params(self) -> dict[str, Any]:
        """What is asked of the backend: the window and the batch."""
        return {"window": int(self.values["window"]), "batch": int(self.values["batch"])}

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            self.values = {**self.values, **values}
        self.ask()
        self._desk.touch()

    def restore(self, settings: dict[str, Any]) -> None:
        """Take values from a link where they are within the sliders' limits."""
        for name, field in _SCHEMA["properties"].items():
            value = settings.get(name)
            if name == "compare":
                fits = value in field["enum"]
            else:
                fits = isinstance(value, int) and field["minimum"] <= value <= field["maximum"]
            if fits:
                self.values[name] = value

    def ask_again(self) -> None:
        """The model or the machine is another one: ask for its curves; those on screen stay until they come."""
        with self._desk.lock:
            self._answers.clear()
        self.ask()

    def ask(self) -> None:
        """Ask for the curves of the present values unless they are known."""
        params = self.params()
        key = (params["window"], params["batch"])
        if key in self._answers:
            return

        def reply(answer: dict[str, Any] | None, why: str) -> None:
            with self._desk.lock:
                self._why = why
                if answer is not None:
                    self._answers[key] = answer
            self._desk.touch()

        self._desk.ask("what_if", params, reply, of_run=False)

    def render(self) -> None:
        """Draw the curves of the chosen comparison; while an answer is on its way, the last one stays."""
        self._controls.set_values(self.values)
        params = self.params()
        answer = self._answers.get((params["window"], params["batch"]), self._shown)
        self._shown = answer
        if answer is None:
            self._legend.say(("p", self._why or "Waiting for the model's shape."))
            return
        if self._drawn == (id(answer), self.values["compare"]):
            return
        self._drawn = (id(answer), str(self.values["compare"]))
        wanted = GROUPS[str(self.values["compare"])]
        curves = [c for c in answer["curves"] if c["group"] in wanted][:CURVES]
        drawn = [{"label": c["name"], "context": answer["contexts"], "bytes": c["bytes"]} for c in curves]
        self._plot.show(drawn, int(answer["free_bytes"]))
        self._legend.legend([(_entry(c), SERIES[i], i >= 3) for i, c in enumerate(curves)])
        self._legend.say(("p", "DERIVED from shapes: nothing was run for these curves."))


def _entry(curve: dict[str, Any]) -> str:
    fits = curve["fits"]
    room = "any context fits" if fits is None else f"fits up to {fits:,} tokens"
    made_for = curve.get("beyond_context")
    limit = f" (made for {made_for:,})" if made_for is not None and (fits is None or fits > made_for) else ""
    return f"{curve['name']}: {format_bytes(curve['bytes_per_token'])} a token, {room}{limit}"


_SCHEMA: dict[str, Any] = {
    "properties": {
        "compare": {
            "type": "string",
            "title": "Compare with",
            "enum": ["heads", "dtype", "known"],
            "labels": ["heads", "dtype", "models"],
            "default": "heads",
            "hint": "segmented",
            "group": "main",
        },
        "window": {
            "type": "integer",
            "title": "Window",
            "minimum": 128,
            "maximum": 8192,
            "default": 1024,
            "step": 128,
            "hint": "slider",
            "group": "main",
            "unit": "tokens",
        },
        "batch": {
            "type": "integer",
            "title": "Batch",
            "minimum": 1,
            "maximum": 64,
            "default": 1,
            "hint": "slider",
            "group": "main",
            "unit": "sequences",
        },
    }
}
