"""Which weights go: exactly as many of the lowest scores as a pattern says, the earlier of equal ones first.

A threshold alone would not do: where many scores are equal, "all up to the k-th" takes far too many. So the scores
below the threshold are taken, and of those equal to it as many as are missing, in their order (by row, then column).
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor

from lab.errors import BadInput, shown
from lab.pruning.pattern import Pattern
from lab.pruning.threshold import Threshold, keys, kth_smallest, row_pieces
from lab.steps import finished, relay

Choosing = Generator[float, None, Tensor]


def lowest(scores: Tensor, pattern: Pattern) -> Tensor:
    """All of `choosing` at once."""
    return finished(choosing(scores, pattern))


def choosing(scores: Tensor, pattern: Pattern) -> Choosing:
    """The weights that are pruned, within the matrix, each row, or each group of m of a row.

    Args:
        scores: (out, in), 0 or more; infinities are in order.

    Yields:
        The share done, every few ms.

    Returns:
        (out, in) bool, True where a weight is pruned; exact counts (`Pattern.pruned_of`).

    Raises:
        BadInput: a score that is NaN or negative, or N:M groups that do not fit.
    """
    rows, columns = scores.shape
    pattern.check(columns)
    check_scores(scores)
    yield 0.0
    pruned = torch.empty(scores.shape, dtype=torch.bool, device=scores.device)
    if pattern.m == 0 and pattern.scope == "matrix":
        steps = kth_smallest(
            lambda: (scores[piece] for piece in row_pieces(rows, columns)),
            pattern.pruned_of(scores.numel()),
            scores.numel(),
        )
        threshold = yield from relay(steps, lambda share: 0.6 * share)
        ties = threshold.ties
        for piece in row_pieces(rows, columns):
            pruned[piece], ties = below(scores[piece], threshold, ties)
            yield 0.6 + 0.4 * piece.stop / rows
        return pruned
    for piece in row_pieces(rows, columns):
        part = scores[piece]
        pruned[piece] = (
            in_groups(part, pattern.n, pattern.m) if pattern.m else in_rows(part, pattern.pruned_of(columns))
        )
        yield piece.stop / rows
    return pruned


def check_scores(scores: Tensor) -> None:
    """Refuse what has no order.

    Raises:
        BadInput: a score is NaN or negative.
    """
    least = float(scores.min()) if scores.numel() else 0.0  # of NaN it is NaN
    if not least >= 0:
        raise BadInput(
            f"A score of {shown(least)} cannot be compared.", remedy="Check that the weights and the inputs are finite."
        )


def below(scores: Tensor, threshold: Threshold, ties: int) -> tuple[Tensor, int]:
    """The scores that a threshold takes from one piece of them.

    Args:
        scores: any shape; pieces must come in the order in which ties are taken.
        ties: equal ones that may still be taken.

    Returns:
        bool of the same shape, and the ties left.
    """
    bits = keys(scores)
    if threshold.ties == threshold.equal:
        return bits <= threshold.bits, ties
    taken = bits < threshold.bits
    if ties <= 0:
        return taken, ties
    places = (bits == threshold.bits).flatten().nonzero()[:ties, 0]
    taken.view(-1)[places] = True
    return taken, ties - len(places)


def in_rows(scores: Tensor, count: int) -> Tensor:
    """The `count` lowest of each row: (rows, columns) bool."""
    columns = scores.shape[1]
    if count <= 0 or count >= columns:
        return torch.full(scores.shape, count > 0, dtype=torch.bool, device=scores.device)
    scores = scores.float()
    threshold = (by_numpy if scores.device.type == "cpu" else by_torch)(scores, count)
    taken = scores <= threshold
    many = (taken.sum(dim=1) != count).nonzero()[:, 0]  # rows with ties at the threshold
    if len(many):
        some, limit = scores[many], threshold[many]
        less, equal = some < limit, some == limit
        missing = count - less.sum(dim=1, keepdim=True)
        taken[many] = less | (equal & (equal.cumsum(dim=1) <= missing))
    return taken


def by_numpy(scores: Tensor, count: int) -> Tensor:
    """The `count`-th lowest of each row, (rows, 1): on a CPU several times as fast as torch's."""
    return torch.from_numpy(np.partition(scores.numpy(), count - 1, axis=1)[:, count - 1 : count])


def by_torch(scores: Tensor, count: int) -> Tensor:
    """The same on any device."""
    return scores.kthvalue(count, dim=1, keepdim=True).values


def in_groups(scores: Tensor, n: int, m: int) -> Tensor:
    """All but the n highest of each m consecutive scores of a row: (rows, columns) bool."""
    columns = scores.reshape(-1, m).t().contiguous()  # (m, groups): whole groups are compared at once
    ranks = torch.zeros(columns.shape, dtype=torch.int8, device=scores.device)
    for second in range(m):
        for first in range(second):
            goes_first = columns[first] <= columns[second]
            ranks[second] += goes_first
            ranks[first] += ~goes_first
    return (ranks < m - n).t().reshape(scores.shape)
