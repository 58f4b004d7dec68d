"""The map of the model: layers across, projections down, coloured by error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from lab.events.quantization import MapCell
from lab.experiments.quantization.choices import PROJECTIONS
from widgets.format import format_number, format_share
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
    "largest": "max |W′ − W|, in the weights’ own scale",
}
_TIPS = [
    ("weight error", "@weight of |W|"),
    ("output error", "@output of |XWᵀ|"),
    ("max |W′ − W|", "@largest"),
    ("bits of a code", "@bits"),
    ("bits per weight in all", "@bpw"),
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
                    "weight": write(c.weight_error, "weight"),
                    "output": write(c.output_error, "output"),
                    "largest": write(c.max_error, "largest"),
                    "bits": c.bits,
                    "bpw": format_number(c.bits_per_weight),
                },
            )
            for c in cells.values()
        ]
        self.draw(
            items,
            layers,
            _label(list(cells.values()), measure),
            planned=planned,
            write=lambda error: write(error, measure),
            title=f"colour: {MEASURES[measure]}, {UNITS[measure]}",
        )


def write(error: float, measure: Measure) -> str:
    """An error as it is read: a share of what it is relative to, a change of a weight as it is."""
    return format_number(error) if measure == "largest" else format_share(error)


def _label(cells: list[MapCell], measure: Measure) -> str:
    finite = [c for c in cells if c.projection in PROJECTIONS and math.isfinite(value(c, measure))]
    if not finite:
        return "Map of the model: nothing measured yet"
    worst, least = (pick(finite, key=lambda c: value(c, measure)) for pick in (max, min))
    return (
        f"Map of the model, {MEASURES[measure]} of {len(finite)} matrices: largest "
        f"{write(value(worst, measure), measure)} at layer {worst.layer} {worst.projection}, smallest "
        f"{write(value(least, measure), measure)} at layer {least.layer} {least.projection}"
    )
