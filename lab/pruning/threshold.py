"""The k-th smallest magnitude of numbers that come in pieces: two histograms of their bits, no sorting, no copy.

The bits of a non-negative fp32 number, read as an integer, are in the order of the numbers. The first pass counts
their upper halves and finds the bin of the k-th, the second counts the lower halves within that bin. So the threshold
is exact, whatever the numbers are, and takes memory for one histogram and one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

PIECE = 2**20
"""Numbers worked on between two pauses: a few ms."""

_HALF = 16
_BINS = 2**_HALF

Pieces = Callable[[], Iterator[Tensor]]


@dataclass(frozen=True)
class Threshold:
    """Which numbers are the smallest: those below `bits`, and the first `ties` of those equal to it.

    Attributes:
        bits: see `keys`; -1 if there are none.
        below: how many are below.
        ties: how many of the equal ones are among the smallest.
        equal: how many equal ones there are in all.
    """

    bits: int
    below: int
    ties: int
    equal: int

    @property
    def value(self) -> float:
        """The largest magnitude among the smallest; 0 if there is none."""
        return float(torch.tensor(max(self.bits, 0), dtype=torch.int32).view(torch.float32))


def keys(values: Tensor) -> Tensor:
    """int32 in the order of |values|, the same shape."""
    return values.float().abs().contiguous().view(torch.int32)


def row_pieces(rows: int, columns: int) -> Iterator[slice]:
    """Rows that are worked on between two pauses."""
    step = max(1, PIECE // max(columns, 1))
    return (slice(low, min(low + step, rows)) for low in range(0, rows, step))


def kth_smallest(pieces: Pieces, count: int, total: int) -> Generator[float, None, Threshold]:
    """The threshold under which the `count` smallest of `total` magnitudes lie.

    Args:
        pieces: gives the numbers, a piece at a time; it is called twice. None may be NaN.
        count: 0 to `total`.

    Yields:
        The share done, after each piece.
    """
    if count <= 0:
        return Threshold(-1, 0, 0, 0)
    upper, below, _ = yield from _bin(pieces, None, count, total)
    lower, more, equal = yield from _bin(pieces, upper, count - below, total)
    return Threshold(upper * _BINS + lower, below + more, count - below - more, equal)


def _bin(pieces: Pieces, upper: int | None, count: int, total: int) -> Generator[float, None, tuple[int, int, int]]:
    """The bin of the `count`-th number, how many lie in those before, and how many in it.

    Args:
        upper: None to sort by the upper half of the bits; else by the lower half, of those with this upper half.
    """
    found: Tensor | None = None
    seen = 0
    for piece in pieces():
        bits = keys(piece).flatten()
        half = bits >> _HALF if upper is None else bits[bits >> _HALF == upper] & (_BINS - 1)
        counts = torch.bincount(half, minlength=_BINS)
        found = counts if found is None else found.add_(counts)
        seen += piece.numel()
        yield (0.0 if upper is None else 0.5) + 0.5 * seen / max(total, 1)
    if found is None:
        raise ValueError("no pieces")
    sums = found.cumsum(0)
    place = int(torch.searchsorted(sums, count))
    inside = int(found[place])
    return place, int(sums[place]) - inside, inside
