"""What a curve can show against sparsity, and the dense model as the point at 0 of each line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lab.events.evaluation import Divergence
from lab.events.pruning import CurvePoint
from widgets.format import format_number
from widgets.numbers import number, percent
from widgets.pruning.state import DENSE

BEARABLE = 0.1
"""Nats: below it most words stay; a line drawn by us, said as such."""
FLOOR = 1e-7
"""A smaller divergence counts as 0: it is rounding of the arithmetic itself."""


@dataclass(frozen=True)
class Measure:
    """One figure of a point.

    Attributes:
        label: on its button. axis: above the vertical axis. words: in a sentence.
        of: the figure; NaN where it was not measured. write: it, for a person.
    """

    label: str
    axis: str
    words: str
    of: Callable[[Divergence], float]
    write: Callable[[float], str]


def _flipped(found: Divergence) -> float:
    return 100 * found.flips / found.positions if found.positions else math.nan


def _perplexity(found: Divergence) -> float:
    return math.nan if found.perplexity is None else found.perplexity


MEASURES: dict[str, Measure] = {
    "kl": Measure(
        "KL", "KL(dense ‖ pruned), nats, log scale", "KL(dense ‖ pruned)", lambda d: d.kl, lambda v: f"{number(v)} nats"
    ),
    "perplexity": Measure("perplexity", "perplexity, log scale", "perplexity", _perplexity, format_number),
    "flips": Measure(
        "top-1 flips",
        "positions whose top token is another, %, log scale",
        "top-1 flips",
        _flipped,
        lambda v: f"{number(v)} %",
    ),
}


def dense_points(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """The dense model at sparsity 0, once for each method that was measured but not there.

    Each point holds the dense model's own figures on its text, so that they are those of any point; against itself
    its KL and its flips are 0.
    """
    drawn = measured(points)
    found: dict[str, CurvePoint] = {}
    for point in drawn:
        divergence = point.divergence
        if divergence is None or point.setting.method in found:
            continue
        dense = replace(
            divergence,
            kl=0.0,
            worst_kl=0.0,
            flips=0,
            perplexity=divergence.dense_perplexity,
            bits_per_byte=divergence.dense_bits_per_byte,
        )
        setting = replace(point.setting, label=DENSE, sparsity=0.0, pattern="")
        found[point.setting.method] = replace(
            point, setting=setting, sparsity=0.0, divergence=dense, chosen=False, ms=math.nan
        )
    there = {point.setting.method for point in drawn if point.sparsity == 0}
    return [point for method, point in found.items() if method not in there]


def kl(point: CurvePoint) -> float:
    """The divergence of a measured point."""
    return point.divergence.kl if point.divergence else math.nan


def measured(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Those that were not skipped."""
    return [p for p in points if math.isfinite(kl(p)) and math.isfinite(p.sparsity)]


def flips(point: CurvePoint) -> str:
    """Positions whose most probable token is another."""
    found = point.divergence
    if found is None or not found.positions:
        return "–"
    return f"{found.flips:,} of {found.positions:,} ({percent(found.flips / found.positions)})"


def perplexity(point: CurvePoint) -> str:
    """Beside the dense one."""
    found = point.divergence
    if found is None or found.perplexity is None:
        return "n/a"
    return f"{format_number(found.perplexity)} against {format_number(found.dense_perplexity)} dense"
