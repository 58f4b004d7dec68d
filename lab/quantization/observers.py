"""Observers: what range the inputs of a layer had on calibration text, by three rules. The range is then fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lab.errors import BadInput, shown

KEPT = 1 << 18
"""Inputs that `PercentileObserver` keeps at most."""


class Observer(Protocol):
    """Sees the inputs of one module, call after call."""

    def see(self, x: Tensor) -> None:
        """Take the inputs of one call, any shape."""
        ...

    def range(self) -> tuple[float, float]:
        """The smallest and the largest input that the levels should reach.

        Raises:
            BadInput: nothing was seen.
        """
        ...


class MaxObserver:
    """The smallest and the largest input ever seen."""

    def __init__(self) -> None:
        self._range: tuple[float, float] | None = None

    def see(self, x: Tensor) -> None:
        """See `Observer`."""
        if x.numel():
            low, high = _ends(x)
            old = self._range or (low, high)
            self._range = (min(low, old[0]), max(high, old[1]))

    def range(self) -> tuple[float, float]:
        """See `Observer`."""
        return _seen(self._range)


class MovingAverageObserver:
    """The ends of each call, averaged: new = (1 - share) old + share of this call; the first call counts whole.

    Args:
        share: what a call counts, above 0 to 1.
    """

    def __init__(self, share: float = 0.1) -> None:
        if not 0 < share <= 1:
            raise BadInput(f"A call counts above 0 to 1 of a moving average, not {shown(share)}.", remedy="Take 0.1.")
        self.share = share
        self._range: tuple[float, float] | None = None

    def see(self, x: Tensor) -> None:
        """See `Observer`."""
        if x.numel():
            low, high = _ends(x)
            old, share = self._range or (low, high), self.share
            self._range = (old[0] + share * (low - old[0]), old[1] + share * (high - old[1]))

    def range(self) -> tuple[float, float]:
        """See `Observer`."""
        return _seen(self._range)


class PercentileObserver:
    """The range that holds a share of all inputs, as many left out at either end.

    Exact up to `KEPT` inputs; of more, a random sample with its own seed is kept.

    Args:
        percent: of the inputs, above 50 to 100: with 99.9 a 2,000th of them lies below, and a 2,000th above.
        seed: of the sample.
    """

    def __init__(self, percent: float = 99.9, seed: int = 0) -> None:
        if not 50 < percent <= 100:
            raise BadInput(f"A percentile is above 50 to 100, not {shown(percent)}.", remedy="Take 99.9.")
        self.percent = percent
        # Not the seed itself: a sample must not be drawn by the very numbers that data with this seed was made of.
        self._random = torch.Generator().manual_seed(seed ^ 0x5DEECE66D)
        self._kept: list[Tensor] = []
        self._count = 0
        self._chance = 1.0

    @property
    def exact(self) -> bool:
        """Whether all inputs were kept."""
        return self._chance == 1.0

    def see(self, x: Tensor) -> None:
        """See `Observer`."""
        values = x.detach().reshape(-1).float().cpu()
        if self._chance < 1.0:
            values = values[torch.rand(values.numel(), generator=self._random) < self._chance]
        self._kept.append(values.clone())
        self._count += values.numel()
        while self._count > KEPT:
            together = torch.cat(self._kept)
            together = together[torch.rand(together.numel(), generator=self._random) < 0.5]
            self._kept, self._count, self._chance = [together], together.numel(), self._chance / 2

    def values(self) -> Tensor:
        """(count,) fp32: the inputs kept."""
        return torch.cat(self._kept) if self._kept else torch.zeros(0)

    def range(self) -> tuple[float, float]:
        """See `Observer`."""
        values = self.values()
        return _seen(percentile_range(values, self.percent) if values.numel() else None)


@dataclass(frozen=True)
class Rule:
    """A way to take a range, for a list of choices.

    Attributes:
        name: "max", "percentile" or "moving_average".
        make: a fresh observer.
    """

    name: str
    make: Callable[[], Observer]


RULES: tuple[Rule, ...] = (
    Rule("max", MaxObserver),
    Rule("percentile", PercentileObserver),
    Rule("moving_average", MovingAverageObserver),
)


def percentile_range(values: Tensor, percent: float) -> tuple[float, float]:
    """The ends that leave (100 - percent) / 2 per cent of the values out on either side; whole ranks, no more left out.

    Args:
        values: any shape, at least one.
    """
    ordered = values.reshape(-1).float().sort().values
    out = int(ordered.numel() * (100.0 - percent) / 200.0)
    return float(ordered[out]), float(ordered[-1 - out])


def _ends(x: Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(x.detach())
    return float(low), float(high)


def _seen(found: tuple[float, float] | None) -> tuple[float, float]:
    if found is None:
        raise BadInput("An observer has seen no inputs, so there is no range.", remedy="Run calibration text first.")
    return found
