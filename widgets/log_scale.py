"""A scale of powers of ten around some figures: where it begins and ends, and what is written below it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MOST_TICKS = 6


@dataclass(frozen=True)
class LogScale:
    """From `low` to `high`, both above 0; the ticks lie within them, ascending."""

    low: float
    high: float
    ticks: tuple[float, ...]


def log_scale(values: Iterable[float]) -> LogScale | None:
    """The scale of all finite values above 0; None where there are none.

    It begins at a power of ten well below the least, so that the least has a place of its own, and ends just above the
    largest. Ticks are the powers of ten, every second one or fewer where there are many, and also 2 and 5 times them
    where there are few.
    """
    known = [v for v in values if math.isfinite(v) and v > 0]
    if not known:
        return None
    least, most = min(known), max(known)
    start = math.floor(math.log10(least / 1.25))
    high = most * 1.12
    end = math.floor(math.log10(high))
    powers = [10.0**power for power in range(start, end + 1)]
    if len(powers) <= 2:
        powers = [times * power for power in powers for times in (1, 2, 5) if times * power <= high]
    every = -(-len(powers) // MOST_TICKS)
    return LogScale(10.0**start, high, tuple(float(f"{power:.3g}") for power in powers[::every]))
