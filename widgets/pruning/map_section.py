"""Where is the model pruned? Layers across, projections down, filled by sparsity or by error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from lab.events.pruning import SparsityCell
from widgets.choice import Choice
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.layer_map import LayerMap, MapItem
from widgets.numbers import percent
from widgets.pruning.state import Matrix, PruningState, layer_count
from widgets.section import Section, heading, section
from widgets.text import Words

Measure = Literal["sparsity", "weight", "output"]
MEASURES: dict[Measure, str] = {"sparsity": "sparsity", "weight": "weight error", "output": "output error"}
_FORM: dict[str, Any] = {
    "properties": {
        "measure": {
            "type": "string",
            "title": "Colour",
            "enum": list(MEASURES),
            "labels": list(MEASURES.values()),
            "default": "sparsity",
            "hint": "segmented",
            "group": "main",
        }
    }
}
_TIPS = [("sparsity", "@gone"), ("kept", "@kept"), ("weight error", "@weight"), ("output error", "@output")]


class MapSection(Section[PruningState]):
    """The map, its scale, and every matrix in the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.measure: Measure = "sparsity"
        self._choice = Choice(desk, "Map of")
        self._controls = Controls(schema=_FORM, values={"measure": self.measure})
        self._controls.on_values(self._chosen)
        self._controls.add_class("lab-inline")
        self._plot = LayerMap("Sparsity of all matrices of the model", _TIPS, ("gone", "kept", "weight", "output"))
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all matrices")
        self.widget = section(
            heading(
                "Where is it pruned?",
                "Every pruned matrix of the model. Global magnitude takes more where weights are small.",
            ),
            self._choice.widget,
            self._controls,
            self._plot,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: PruningState) -> bool:
        return bool(state.pruned)

    def _chosen(self, values: dict[str, Any]) -> None:
        if values.get("measure") in MEASURES:
            with self._desk.lock:
                self.measure = values["measure"]
            self._desk.touch()

    def render(self, state: PruningState, upto: int, *, live: bool) -> None:
        del upto
        settings = state.map_settings
        if not settings:
            return
        used = settings[self._choice.show([s.label for s in settings])]
        cells = state.cells(used)
        layers = layer_count(state)
        names = {c.projection for c in cells.values()}
        planned = [(layer, name) for layer in range(layers) for name in names] if live and state.end is None else []
        self._controls.set_values({"measure": self.measure})
        items = [_item(c, self.measure) for c in cells.values()]
        words = map_words(cells, self.measure)
        alike = self.measure == "sparsity" and spread([item.value for item in items]) < 5e-3
        label = f"{MEASURES[self.measure]} by {used.label}. {words}"
        self._plot.draw(items, layers, label, planned=planned, write=percent, ends=(0.0, 1.0) if alike else None)
        self._caption.say(("p", f"MEASURED for {used.label}. {words}"))
        if not live:
            self._table.show(map_table(state))

    def tables(self, state: PruningState) -> Sequence[Table]:
        return (map_table(state),)

    def link(self) -> dict[str, Any]:
        return {"map_colour": None if self.measure == "sparsity" else self.measure}

    def restore(self, settings: dict[str, Any]) -> None:
        wanted = settings.get("map_colour")
        if isinstance(wanted, str) and wanted in MEASURES:
            self.measure = wanted


def gone(cell: SparsityCell) -> float:
    """Share of a matrix that is pruned."""
    return 1 - cell.kept / cell.weights if cell.weights else math.nan


def spread(values: Sequence[float]) -> float:
    """From the least to the most; 0 where there are none."""
    finite = [v for v in values if math.isfinite(v)]
    return max(finite) - min(finite) if finite else 0.0


def value_of(cell: SparsityCell, measure: Measure) -> float:
    """The figure that fills a matrix."""
    return {"sparsity": gone(cell), "weight": cell.weight_error, "output": cell.output_error}[measure]


def _item(cell: SparsityCell, measure: Measure) -> MapItem:
    tips = {
        "gone": percent(gone(cell)),
        "kept": f"{cell.kept:,} of {cell.weights:,}",
        "weight": percent(cell.weight_error),
        "output": percent(cell.output_error),
    }
    return MapItem(cell.layer, cell.projection, value_of(cell, measure), tips)


def map_words(cells: dict[Matrix, SparsityCell], measure: Measure) -> str:
    """The most and the least, or that all are alike."""
    finite = {m: v for m, c in cells.items() if math.isfinite(v := value_of(c, measure))}
    if not finite:
        return f"No {MEASURES[measure]} was measured."
    most, least = max(finite, key=lambda m: finite[m]), min(finite, key=lambda m: finite[m])
    if spread(list(finite.values())) < 5e-4:
        return f"All {len(finite)} matrices: {percent(finite[most])}, to a tenth of a percent or nearer."
    return f"Most: {most.title}, {percent(finite[most])}, ringed. Least: {least.title}, {percent(finite[least])}."


def map_table(state: PruningState) -> Table:
    """Every matrix by every setting."""
    head = ["setting", "layer", "projection", "weights", "kept", "sparsity", "weight error", "output error"]
    rows = [
        [
            used.label,
            c.layer,
            c.projection,
            c.weights,
            c.kept,
            _number(gone(c)),
            _number(c.weight_error),
            _number(c.output_error),
        ]
        for used in state.map_settings
        for c in state.cells(used).values()
    ]
    return Table("sparsity_map", head, rows)


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
