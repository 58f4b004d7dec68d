"""Which positions a token reads: the recorded weights where they are, else asked for."""

from __future__ import annotations

from typing import Any

import ipywidgets as ipw

from lab.events import ArrayData
from widgets.controls import Controls
from widgets.experiment import Desk
from widgets.kv_cache.attention_plot import AttentionPlot, Reading
from widgets.kv_cache.state import KVCacheState
from widgets.text import Words


class AttentionSection:
    """Heading, layer and head, bars. `layer` and `head` are part of the link."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.layer = 0
        self.head = 0
        self._exact: dict[tuple[int, int, int], Reading] = {}
        self._refused: dict[tuple[int, int, int], str] = {}
        self._asked: set[tuple[int, int, int]] = set()
        self._heading = Words(css_class="lab-heading")
        self._caption = Words(css_class="lab-caption")
        self._plot = AttentionPlot()
        self._controls = Controls(schema=_schema(30, 9), values={"layer": 0, "head": 0})
        self._controls.on_values(self._chosen)
        self._controls.add_class("lab-inline")
        self.widget = ipw.VBox([self._heading, self._controls, self._plot, self._caption])
        self.widget.add_class("lab-section")

    def reset(self) -> None:
        """Another run: what was asked of the last one is of no use."""
        self._exact.clear()
        self._refused.clear()
        self._asked.clear()

    def choose_layer(self, layer: int) -> None:
        """Show another layer; callers hold the lock."""
        self.layer = layer
        self._desk.touch()

    def _chosen(self, values: dict[str, Any]) -> None:
        with self._desk.lock:
            self.layer, self.head = int(values.get("layer", self.layer)), int(values.get("head", self.head))
        self._desk.touch()

    def weights(self, state: KVCacheState, step: int) -> Reading | None:
        """The weights with which new token `step` was chosen, for the layer and head on screen, if known."""
        key = (step, self.layer, self.head)
        if key in self._exact:
            return self._exact[key]
        read = state.reads.get(step)
        if read is None or self.layer not in read.layers:
            return None
        table = read.weights.numpy()
        row = table[read.layers.index(self.layer)]
        if self.head >= row.shape[0]:
            return None
        starts = tuple(read.first_position + i * read.bin_size for i in range(row.shape[1]))
        return Reading(starts, read.bin_size, tuple(float(w) for w in row[self.head]))

    def render(self, state: KVCacheState, step: int) -> Reading | None:
        """Draw the reading of `step`, asking for it if it was not recorded."""
        facts = state.started.facts if state.started else None
        if facts is not None:
            self.layer = min(self.layer, len(facts.layers) - 1)
            self.head = min(self.head, facts.query_heads - 1)
            self._controls.set_schema(_schema(len(facts.layers), facts.query_heads))
        self._controls.set_values({"layer": self.layer, "head": self.head})
        reading = self.weights(state, step) if step >= 0 else None
        key = (step, self.layer, self.head)
        if reading is None and step >= 0 and state.finished and key not in self._asked:
            self._asked.add(key)
            self._ask(key)
        what = f"Layer {self.layer}, head {self.head}, new token {step + 1}"
        self._plot.show(reading, state.prompt_length, what)
        self._heading.say(
            ("h2", "What does it read?"),
            ("p", "The newest position looks at every cached one. Point at a token to see what it read."),
        )
        self._caption.say(("p", self._words(reading, key, step)))
        return reading

    def _words(self, reading: Reading | None, key: tuple[int, int, int], step: int) -> str:
        if reading is not None:
            bins = f" Each bar is the largest of {reading.size} positions." if reading.size > 1 else ""
            return f"MEASURED: softmax weights of this pass, they sum to 1 over all positions.{bins}"
        if key in self._refused:
            return self._refused[key]
        return "" if step < 0 else "This layer was not recorded; it can be asked for once the run has ended."

    def _ask(self, key: tuple[int, int, int]) -> None:
        step, layer, head = key

        def reply(answer: dict[str, Any] | None, why: str) -> None:
            with self._desk.lock:
                if answer is None:
                    self._refused[key] = why
                else:
                    self._exact[key] = _binned(answer)
            self._desk.touch()

        self._desk.ask("attention", {"index": step, "layer": layer, "head": head}, reply, of_run=True)


def _binned(answer: dict[str, Any], most: int = 256) -> Reading:
    weights = [float(w) for w in ArrayData.from_json(answer["weights"]).numpy()]
    first = int(answer.get("first_position", 0))
    size = -(-len(weights) // most)
    pooled = tuple(max(weights[i : i + size]) for i in range(0, len(weights), size))
    return Reading(tuple(first + i * size for i in range(len(pooled))), size, pooled)


def _schema(layers: int, heads: int) -> dict[str, Any]:
    def slider(title: str, most: int) -> dict[str, Any]:
        return {
            "type": "integer",
            "title": title,
            "minimum": 0,
            "maximum": most,
            "default": 0,
            "hint": "slider",
            "group": "main",
        }

    return {"properties": {"layer": slider("Layer", layers - 1), "head": slider("Query head", heads - 1)}}
