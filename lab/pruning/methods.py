"""The methods by name: one table for the command line, the experiment and the tests. No torch until one is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lab.errors import NotFound, shown
from lab.pruning.pattern import Pattern

if TYPE_CHECKING:
    from lab.pruning.method import Method


@dataclass(frozen=True)
class Settings:
    """What can be set of any method; each reads those that are named in its `uses`.

    Attributes:
        pattern: how many weights go, and among which. A method without "scope" in its `uses` has its own.
        seed: see `lab.pruning.random.Random`.
        matrix: its name in its model, so that each of a model has a seed of its own; "" for a matrix alone.
        damping, block: see `lab.pruning.sparsegpt.SparseGpt`.
    """

    pattern: Pattern = field(default_factory=Pattern)
    seed: int = 0
    matrix: str = ""
    damping: float = 0.01
    block: int = 128


@dataclass(frozen=True)
class Entry:
    """One method of the table.

    Attributes:
        label: as on screen.
        summary: one sentence.
        uses: names of the settings that it reads; of the pattern, "sparsity", "scope" and "nm".
        make: the method with its settings; raises BadInput for those outside their limits.
        calibrated: whether it needs calibration text.
        updates: whether it changes the weights that are left.
    """

    label: str
    summary: str
    uses: tuple[str, ...]
    make: Callable[[Settings], Method]
    calibrated: bool = False
    updates: bool = False


def _random(given: Settings) -> Method:
    from lab.pruning.random import Random

    alone = Random(given.pattern, given.seed)
    return alone.of_matrix(given.matrix) if given.matrix else alone


def _magnitude(given: Settings) -> Method:
    from lab.pruning.magnitude import Magnitude

    return Magnitude(given.pattern)


def _wanda(given: Settings) -> Method:
    from lab.pruning.wanda import Wanda

    return Wanda(given.pattern if given.pattern.m else replace(given.pattern, scope="row"))


def _sparsegpt(given: Settings) -> Method:
    from lab.pruning.sparsegpt import SparseGpt

    return SparseGpt(given.pattern, damping=given.damping, block=given.block)


METHODS: dict[str, Entry] = {
    "random": Entry(
        "Random", "Weights are drawn by lot: what every other method must beat.",
        ("sparsity", "scope", "nm", "seed"), _random,
    ),
    "magnitude": Entry(
        "Magnitude", "The weights closest to zero go.",
        ("sparsity", "scope", "nm"), _magnitude,
    ),
    "wanda": Entry(
        "Wanda", "Of each output the weights go that are smallest times the size of what they multiply.",
        ("sparsity", "nm"), _wanda, calibrated=True,
    ),
    "sparsegpt": Entry(
        "SparseGPT", "Columns are pruned one after another, and the weights that are left make up for it.",
        ("sparsity", "scope", "nm", "damping", "block"), _sparsegpt, calibrated=True, updates=True,
    ),
}  # fmt: skip


def make_method(name: str, settings: Settings | None = None) -> Method:
    """The method `name` with its settings.

    Raises:
        NotFound: there is none of that name; all names are given.
        BadInput: a setting outside its limits.
    """
    if name not in METHODS:
        raise NotFound(f"There is no method {shown(name)}.", remedy=f"Choose one of {', '.join(METHODS)}.")
    return METHODS[name].make(settings or Settings())
