"""One colour and one symbol for each method, the same in every picture."""

from __future__ import annotations

from dataclasses import dataclass

from lab.experiments.pruning.choices import METHODS
from widgets.bar_table import Series
from widgets.numbers import capital

DENSE: Series = 6
"""The dense model in tables of bars: the neutral colour, for it is no method."""


@dataclass(frozen=True)
class Mark:
    """How a method looks; `marker` and `dash` as Bokeh names them, `series` in tables of bars."""

    name: str
    title: str
    marker: str
    colour: str
    series: Series
    dash: tuple[int, ...] = ()
    size: int = 9


MARKS: tuple[Mark, ...] = (
    Mark("magnitude", "magnitude", "circle", "--lab-series-1", 1),
    Mark("sparsegpt", "SparseGPT", "square", "--lab-series-2", 2, (8, 3)),
    Mark("wanda", "Wanda", "triangle", "--lab-series-3", 3, (8, 3, 2, 3), 11),
    Mark("rows", "heads and channels", "diamond", "--lab-series-4", 4, (5, 5), 13),
    Mark("global_magnitude", "magnitude, all layers together", "inverted_triangle", "--lab-series-5", 5, (2, 3), 11),
    Mark("random", "at random", "x", "--lab-muted", DENSE, (1, 4), 10),
)
_BY_NAME = {mark.name: mark for mark in MARKS}


def mark_of(method: str) -> Mark:
    """The mark of a method; one that is not known looks like "random"."""
    return _BY_NAME.get(method, MARKS[-1])


def title_of(method: str) -> str:
    """A method's name for a person, in the middle of a sentence; an unknown one as it is."""
    names: dict[str, str] = {str(k): v for k, v in METHODS.items()}
    return names.get(method, method)


def heading_of(method: str) -> str:
    """The same at the start of one."""
    return capital(title_of(method))


def tight(label: str) -> str:
    """A setting's label for a narrow column: its percentage is not broken."""
    return label.replace(" %", "\u00a0%")
