"""Where does the update sit? Layers across, projections down, filled by |dW| / |W|."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.events.lora import UpdateMap
from lab.experiments.compared.fields import PROJECTIONS, missing_projections
from widgets.choice import Choice
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.layer_map import LayerMap, MapItem
from widgets.lora.sentences import unbroken
from widgets.lora.state import LoraState, layer_count
from widgets.numbers import percent
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.token_text import plain_text

_TIPS = [("|ΔW| / |W|", "@share")]


class MapSection(Section[LoraState]):
    """The map of one adapter, its scale, and every matrix in the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._choice = Choice(desk, "Map of")
        self._plot = LayerMap("Where the update sits", _TIPS, ("share",), none="not adapted")
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all matrices")
        self.widget = section(
            heading(
                "Where does it sit?",
                "Size of each update beside the size of its matrix, |ΔW| / |W|, in the Frobenius norm.",
            ),
            self._choice.widget,
            self._plot,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: LoraState) -> bool:
        return bool(state.maps)

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto
        maps = list(state.maps.values())
        found = maps[self._choice.show([plain_text(m.adapter) for m in maps])]
        items = map_items(found)
        bare = not_adapted(items, state)
        words = map_words([*items, *bare])
        label = f"Update of {plain_text(found.adapter)}. {words}"
        self._plot.draw([*items, *bare], layer_count(state), label, write=percent)
        self._caption.say(("p", f"MEASURED. {words}"))
        if not live:
            self._table.show(map_table(state))

    def tables(self, state: LoraState) -> Sequence[Table]:
        return (map_table(state),)


def map_items(found: UpdateMap) -> list[MapItem]:
    """One item a matrix; those without an update have no value."""
    norms = found.norms.numpy()
    if norms.ndim != 2 or norms.shape[1] != len(found.projections):
        return []
    return [
        MapItem(layer, name, float(norms[layer, column]), {"share": percent(float(norms[layer, column]))})
        for layer in range(norms.shape[0])
        for column, name in enumerate(found.projections)
    ]


def not_adapted(items: Sequence[MapItem], state: LoraState) -> list[MapItem]:
    """The places of the model's other projections, which the adapter leaves alone."""
    facts = state.started.facts if state.started else None
    if facts is None:
        return []
    there, missing = {(item.layer, item.projection) for item in items}, missing_projections(facts)
    return [
        MapItem(layer, name, math.nan)
        for layer in range(layer_count(state))
        for name in PROJECTIONS
        if name not in missing and (layer, name) not in there
    ]


def map_words(items: Sequence[MapItem]) -> str:
    """The most and the least, and how many have none."""
    finite = [item for item in items if math.isfinite(item.value)]
    if not finite:
        return "No matrix has an update."
    most, least = max(finite, key=lambda item: item.value), min(finite, key=lambda item: item.value)
    none = len(items) - len(finite)
    words = f"Most: {_title(most)}, {unbroken(most.value)}, ringed. Least: {_title(least)}, {unbroken(least.value)}."
    if len(finite) == 1 or most.value == least.value:
        words = f"{len(finite)} matrices, {unbroken(most.value)} each."
    return words + (f" Hatched: {none} not adapted." if none else "")


def _title(item: MapItem) -> str:
    return f"layer {item.layer} {item.projection}"


def map_table(state: LoraState) -> Table:
    """Every matrix of every adapter."""
    rows = [
        [found.adapter, item.layer, item.projection, float(f"{item.value:.5g}") if math.isfinite(item.value) else None]
        for found in state.maps.values()
        for item in map_items(found)
    ]
    return Table("update_map", ["adapter", "layer", "projection", "|dW| / |W|"], rows)
