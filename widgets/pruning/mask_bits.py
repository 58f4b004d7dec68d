"""Masks as packed bits: unpacked, compared, counted, checked for N:M. numpy alone."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lab.events.array import ArrayData
from lab.events.pruning import MaskMade

Bits = npt.NDArray[np.uint8]
MOST_GROUPS = 400
"""Groups that are marked in the picture."""


@dataclass(frozen=True)
class MaskBits:
    """One mask of the picture.

    Attributes:
        bits: (row, ceil(columns / 8)) uint8, the lowest bit first, 1 where kept.
        live: it follows a slider; it is not the run's.
    """

    method: str
    label: str
    rows: int
    columns: int
    bits: ArrayData
    live: bool = False

    @classmethod
    def of(cls, made: MaskMade) -> MaskBits | None:
        """A run's mask; None where its bits do not fit its shape."""
        mask = cls(made.setting.method, made.setting.label, made.rows, made.columns, made.bits)
        return mask if mask.fits else None

    @property
    def fits(self) -> bool:
        """Whether the bits have the shape that rows and columns say."""
        shape = (self.rows, -(-self.columns // 8))
        return self.rows > 0 and self.columns > 0 and self.bits.dtype == "uint8" and self.bits.shape == shape

    @property
    def text(self) -> str:
        """The bits in base64, as they travel to the page."""
        return _base64(self.bits)

    def unpacked(self) -> Bits:
        """(row, column) uint8, 1 where kept."""
        return _unpacked(self.bits, self.columns)

    @property
    def kept(self) -> int:
        """Weights kept, counted."""
        return int(self.unpacked().sum(dtype=np.int64))

    @property
    def row_kept(self) -> list[int]:
        """Weights kept of each row."""
        counts: list[int] = self.unpacked().sum(axis=1, dtype=np.int64).tolist()
        return counts

    @property
    def sparsity(self) -> float:
        """Share of the weights that are gone, counted."""
        return 1 - self.kept / (self.rows * self.columns)


@lru_cache(maxsize=16)
def _base64(bits: ArrayData) -> str:
    return base64.b64encode(bits.data).decode("ascii")


@lru_cache(maxsize=16)
def _unpacked(bits: ArrayData, columns: int) -> Bits:
    return np.unpackbits(bits.numpy(), axis=1, count=columns, bitorder="little")


@dataclass(frozen=True)
class Overlap:
    """Two masks of one matrix, weight by weight."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def weights(self) -> int:
        """All of them."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def differ(self) -> float:
        """Share of the weights that one keeps and the other does not."""
        return (self.only_first + self.only_second) / self.weights if self.weights else 0.0


def overlap(first: MaskBits, second: MaskBits) -> Overlap | None:
    """How two masks agree; None where they are of different shapes."""
    if (first.rows, first.columns) != (second.rows, second.columns):
        return None
    a, b = first.unpacked().astype(bool), second.unpacked().astype(bool)
    both, mine, theirs = int((a & b).sum()), int((a & ~b).sum()), int((b & ~a).sum())
    return Overlap(both, mine, theirs, a.size - both - mine - theirs)


@dataclass(frozen=True)
class NmFound:
    """What a check of N:M found.

    Attributes:
        along: "in", the axis that hardware reads, or "out".
        refused: why no check is possible; "" if it was made.
        groups: in all. broken: those with more than N kept. other_way: those broken along the other axis, None where
            its length is no multiple of M.
        marked: (row, first column, rows, columns, kept) of the first broken ones.
    """

    n: int
    m: int
    along: str
    refused: str
    groups: int
    broken: int
    other_way: int | None
    marked: tuple[tuple[int, int, int, int, int], ...]

    @property
    def name(self) -> str:
        """The pattern: "2:4"."""
        return f"{self.n}:{self.m}"


def check_nm(mask: MaskBits, n: int, m: int, along: str = "in") -> NmFound:
    """Look at every group of M neighbours along one axis."""
    bits = mask.unpacked() if along == "in" else mask.unpacked().T
    if bits.shape[1] % m:
        axis = "input" if along == "in" else "output"
        words = f"{bits.shape[1]:,} weights along the {axis} are no whole groups of {m}."
        return NmFound(n, m, along, words, 0, 0, None, ())
    kept = _group_kept(bits, m)
    at = np.argwhere(kept > n)
    marked = []
    for line, group in at[:MOST_GROUPS].tolist():
        start, count = group * m, int(kept[line, group])
        marked.append((line, start, 1, m, count) if along == "in" else (start, line, m, 1, count))
    other = bits.T
    other_way = int((_group_kept(other, m) > n).sum()) if other.shape[1] % m == 0 else None
    return NmFound(n, m, along, "", kept.size, len(at), other_way, tuple(marked))


def _group_kept(bits: Bits, m: int) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = bits.reshape(bits.shape[0], -1, m).sum(axis=2, dtype=np.int64)
    return found
