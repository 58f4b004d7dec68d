"""Masks once more, row by row in plain Python: what the proof compares with.

Nothing here uses the arithmetic of `lab.pruning`: numbers are Python's own, one at a time, from the definitions
(|w| for magnitude; |w| ||x||_2 for Wanda; N of each M consecutive weights along the input).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NEAR = 1e-6
"""Relative: scores of fp32 products that are nearer than this may stand either way."""


def wrong_pattern(kept: Sequence[bool], n: int, m: int) -> str:
    """The first group of a row that does not keep exactly n of m; "" if all do."""
    for start in range(0, len(kept), m):
        count = sum(1 for one in kept[start : start + m] if one)
        if count != n:
            return f"columns {start} to {start + m - 1} keep {count} weights, and {n}:{m} keeps {n}"
    return ""


def wrong_count(kept: int, weights: int, sparsity: float, what: str) -> str:
    """Whether exactly round(sparsity * weights) went, a half to the even number; "" if so."""
    wanted = weights - round(sparsity * weights)
    return "" if kept == wanted else f"{what} keeps {kept:,} of {weights:,} weights, and {wanted:,} were asked for"


def magnitudes(row: Sequence[float]) -> list[float]:
    """|w| of each weight."""
    return [abs(w) for w in row]


def wanda_scores(row: Sequence[float], mean_square: Sequence[float]) -> list[float]:
    """|w_j| ||x_j||_2 of each weight, up to a factor that all share; without any input |w|."""
    if max(mean_square) == 0:
        return magnitudes(row)
    return [abs(w) * math.sqrt(square) for w, square in zip(row, mean_square, strict=True)]


def wrong_choice(scores: Sequence[float], kept: Sequence[bool], size: int, near: float = 0.0) -> str:
    """A weight that went although one with a lower score stayed, compared within each `size` of a row; "" for none.

    Args:
        near: relative difference of two scores that may stand either way; 0: of equal ones the earlier goes.
    """
    for start in range(0, len(scores), size):
        inside = range(start, min(start + size, len(scores)))
        gone = [(scores[j], j) for j in inside if not kept[j]]
        left = [(scores[j], j) for j in inside if kept[j]]
        if not gone or not left:
            continue
        worst, first = max(gone), min(left)
        wrong = worst[0] > first[0] * (1 + near) if near else worst > first
        if wrong:
            return (
                f"column {worst[1]} with a score of {worst[0]:.6g} went, and column {first[1]} with {first[0]:.6g} "
                "stayed"
            )
    return ""


def wrong_values(kept: Sequence[bool], values: Sequence[float], runs: Sequence[float]) -> str:
    """A pruned weight that runs, or a kept one that is not the method's value; "" for none."""
    for column, (keep, value, weight) in enumerate(zip(kept, values, runs, strict=True)):
        if not keep and weight != 0:
            return f"column {column} is pruned, and {weight:.6g} runs"
        if keep and weight != value:
            return f"column {column} is kept as {value:.6g}, and {weight:.6g} runs"
    return ""


def counted_bits(data: bytes) -> int:
    """Bits of packed bytes that are 1."""
    return int.from_bytes(data, "little").bit_count()
