"""How often one visitor may do something: a token bucket for each."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_KEYS = 4096


class Rate:
    """So much a minute for each key, and as much at once.

    Not safe between threads: it belongs to an event loop.

    Args:
        per_minute: counts, bytes or whatever `take` is given.
        clock: seconds.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = float(per_minute)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, amount: float = 1.0) -> int:
        """0 if `key` may go on, else after how many seconds it may try again (at least 1)."""
        now = self._clock()
        left, then = self._left.pop(key, (self._most, now))
        left = min(self._most, left + (now - then) * self._most / 60.0)
        wait_s = 0
        if amount <= left:
            left -= amount
        else:
            wait_s = max(1, math.ceil((min(amount, self._most) - left) * 60.0 / self._most))
        self._left[key] = (left, now)
        if len(self._left) > MOST_KEYS:
            self._left.popitem(last=False)  # the one that was quiet longest has most of its own back
        return wait_s
