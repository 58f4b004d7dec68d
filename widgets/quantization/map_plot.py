"""The map of the model: layers across, projections down, coloured by error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from lab.events.quantization import MapCell
from lab.experiments.quantization.choices import PROJECTIONS
from widgets.format import format_number
from widgets.layer_map import LayerMap, MapItem
from widgets.quantization.state import Matrix

Measure = Literal["weight", "output", "largest"]
MEASURES: dict[Measure, str] = {
    "weight": "weight error",
    "output": "output error",
    "largest": "largest change of a weight",
}
UNITS: dict[Measure, str] = {
    "weight": "|W′ − W| / |W|",
    "output": "|X(W′ − W)ᵀ| / |XWᵀ|, held-out text",
    "largest": "largest |W′ − W|",
}
_TIPS = [
    ("weight error", "@weight"),
    ("output error", "@output"),
    ("largest change", "@largest"),
    ("bits", "@bits, @bpw a weight in all"),
]


def value(cell: MapCell, measure: Measure) -> float:
    """The error of a cell that is drawn."""
    return {"weight": cell.weight_error, "output": cell.output_error, "largest": cell.max_error}[measure]


class MapPlot(LayerMap):
    """One rectangle a matrix; the largest error is marked, the scale stands above the map."""

    def __init__(self) -> None:
        super().__init__("Errors of all matrices of the model", _TIPS, ("weight", "output", "largest", "bits", "bpw"))

    def show(self, cells: Mapping[Matrix, MapCell], layers: int, measure: Measure, planned: list[Matrix]) -> None:
        """Draw cells.

        Args:
            layers: how many the model has.
            planned: matrices that are still to come, as empty places.
        """
        items = [
            MapItem(
                c.layer,
                c.projection,
                value(c, measure),
                {
                    "weight": format_number(c.weight_error),
                    "output": format_number(c.output_error),
                    "largest": format_number(c.max_error),
                    "bits": c.bits,
                    "bpw": format_number(c.bits_per_weight),
                },
            )
            for c in cells.values()
        ]
        self.draw(items, layers, _label(list(cells.values()), measure), planned=planned)


def _label(cells: list[MapCell], measure: Measure) -> str:
    finite = [c for c in cells if c.projection in PROJECTIONS and math.isfinite(value(c, measure))]
    if not finite:
        return "Map of the model: nothing measured yet"
    worst, least = (pick(finite, key=lambda c: value(c, measure)) for pick in (max, min))
    return (
        f"Map of the model, {MEASURES[measure]} of {len(finite)} matrices: largest "
        f"{format_number(value(worst, measure))} at layer {worst.layer} {worst.projection}, smallest "
        f"{format_number(value(least, measure))} at layer {least.layer} {least.projection}"
    )
