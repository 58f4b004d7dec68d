"""What one run has to compare. Each experiment's `compare.py` makes it from the run's state.

A figure, a line and a text of one run meet those of the other by their `id`: the same id means the same quantity in
the same unit. The order in which they stand here is the order on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeGuard

from widgets.format import (
    format_bytes,
    format_count,
    format_ms,
    format_rate,
    format_ratio,
    format_share,
    typeset_number,
)
from widgets.numbers import percent

MEASURED, DERIVED = "MEASURED", "DERIVED"
Place = float | str
"""Where a value stands on the x axis: a number, or the name of one of several things."""


@dataclass(frozen=True)
class Measure:
    """How a quantity is written, and how two of them are set against each other.

    Attributes:
        write: the value as text, with its unit.
        ratio: as B / A; else as B − A.
        timed: it is a time or made of times, so that what ran beside the run changed it.
        points: the difference of two shares, which is in percentage points.
    """

    write: Callable[[float], str]
    ratio: bool = False
    timed: bool = False
    points: bool = False


MS = Measure(format_ms, ratio=True, timed=True)
RATE = Measure(format_rate, ratio=True, timed=True)
SPEEDUP = Measure(format_ratio, ratio=True, timed=True)
BYTES = Measure(format_bytes, ratio=True)
COUNT = Measure(format_count)
SHARE = Measure(format_share, points=True)
NUMBER = Measure(typeset_number)
SIZE = Measure(typeset_number, ratio=True)
"""A number that is 0 at its least, such as a perplexity: twice as much means something."""
ERROR = Measure(percent, ratio=True)
"""A relative error, as the pages write it."""
FACTOR = Measure(format_ratio, ratio=True)
"""A ratio of two quantities that are no times."""


@dataclass(frozen=True)
class Quantity:
    """One figure of a run.

    Attributes:
        name: for a person, what is counted or measured.
        badge: where it comes from: "MEASURED", "DERIVED" or "SIMULATED".
        basis: what decides its scale beside the unit, in words ("length penalty 1.0", a text's hash): figures of two
            bases are shown and not set against each other.
        matrices: those that it is a mean over, in words; of other matrices it is shown and not set against this.
    """

    id: str
    name: str
    value: float
    measure: Measure
    badge: str = MEASURED
    basis: str = ""
    matrices: str = ""


@dataclass(frozen=True)
class Line:
    """One series of a run.

    Attributes:
        x, y: names of the axes, units with them.
        points: (place, value) in the order of the axis; all places are numbers, or all are names.
        joined: whether what lies between two points means anything; else they are marks alone.
        timed: as in `Measure`. basis: as in `Quantity`; lines of two bases are not drawn on one axis.
    """

    id: str
    title: str
    x: str
    y: str
    points: tuple[tuple[Place, float], ...]
    badge: str = MEASURED
    joined: bool = True
    timed: bool = False
    basis: str = ""


@dataclass(frozen=True)
class Token:
    """A token of a text; `id` tells it from others of the same vocabulary."""

    id: int
    text: str


@dataclass(frozen=True)
class Text:
    """A text that a run wrote, without its prompt."""

    id: str
    title: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Told:
    """All of one run.

    Attributes:
        task: what it did, the parameter's value; "" where the experiment does one thing only.
    """

    task: str = ""
    figures: tuple[Quantity, ...] = ()
    lines: tuple[Line, ...] = ()
    texts: tuple[Text, ...] = ()


def figure(
    key: str,
    name: str,
    value: float | None,
    measure: Measure,
    badge: str = MEASURED,
    basis: str = "",
    matrices: str = "",
) -> Quantity | None:
    """A figure, `key` its id; None where the run has no finite value of it."""
    return Quantity(key, name, value, measure, badge, basis, matrices) if is_there(value) else None


def collect(
    figures: Iterable[Quantity | None] = (),
    lines: Iterable[Line] = (),
    texts: Iterable[Text] = (),
    task: str = "",
) -> Told:
    """What a run has of these: figures that are there, lines with a finite point, texts with a token."""
    drawn = [
        replace(line, points=tuple((x, y) for x, y in line.points if _is_place(x) and is_there(y))) for line in lines
    ]
    return Told(
        task,
        tuple(f for f in figures if f is not None),
        tuple(line for line in drawn if line.points),
        tuple(text for text in texts if text.tokens),
    )


def _is_place(place: Place) -> bool:
    return isinstance(place, str) or is_there(place)


def is_there(value: float | None) -> TypeGuard[float]:
    """Whether it is a finite number."""
    return value is not None and math.isfinite(value)


def layer_words(layers: Iterable[object]) -> str:
    """Layers for a person: "layer 0", "layers 0, 14"."""
    names = [str(layer) for layer in layers]
    return f"layer{'s' if len(names) != 1 else ''} {', '.join(names)}"


def matrix_words(matrices: Iterable[tuple[int, str]]) -> str:
    """Which matrices these are: "layer 0 q_proj", "layers 0, 14 q_proj", of several projections "210 matrices"."""
    found = sorted(set(matrices))
    projections = {projection for _, projection in found}
    if len(projections) == 1:
        return f"{layer_words(layer for layer, _ in found)} {projections.pop()}"
    return f"{len(found):,} matrices"


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are there; None where none is."""
    finite = [v for v in values if is_there(v)]
    return fmean(finite) if finite else None
