"""From scores to the result of a method that keeps weights as they are; and what each method checks first."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lab.models.linear import check_weight
from lab.pruning.choose import choosing
from lab.pruning.method import Pruned, Pruning
from lab.pruning.pattern import Pattern
from lab.pruning.threshold import row_pieces
from lab.steps import relay

_SCORED, _CHOSEN = 0.2, 0.8  # of the time


def check_matrix(weight: Tensor, pattern: Pattern) -> None:
    """Refuse what cannot be pruned.

    Raises:
        BadInput: no matrix of finite numbers in fp32's range, an empty one, or a width that N:M does not divide.
    """
    check_weight(weight)
    pattern.check(weight.shape[1])


def masked(
    weight: Tensor, score: Callable[[slice], Tensor], pattern: Pattern, *, notes: tuple[str, ...] = ()
) -> Pruning:
    """Set the weights with the lowest scores to 0, some rows at a time: a tall matrix takes many short pauses.

    Args:
        weight: (out, in), any floating dtype; not changed.
        score: of some rows of the matrix, (rows, in), 0 or more. It is called once for all rows, from the top.

    Raises:
        BadInput: see `choosing`.
    """
    scores = torch.empty(weight.shape, dtype=torch.float32, device=weight.device)
    for piece in row_pieces(*weight.shape):
        scores[piece] = score(piece)
        yield _SCORED * (piece.stop / weight.shape[0])
    gone = yield from relay(choosing(scores, pattern), lambda share: _SCORED + (_CHOSEN - _SCORED) * share)
    return (yield from kept_values(weight, gone.logical_not_(), start=_CHOSEN, notes=notes))


def kept_values(weight: Tensor, mask: Tensor, *, start: float = 0.0, notes: tuple[str, ...] = ()) -> Pruning:
    """The weights that a mask keeps as they are, and 0 elsewhere, some rows at a time.

    Args:
        mask: (out, in) bool, True where a weight is kept.
        start: the share that was done before, 0 to 1.
    """
    values = torch.empty(weight.shape, dtype=torch.float32, device=weight.device)
    for piece in row_pieces(*weight.shape):
        values[piece] = weight.detach()[piece].float().masked_fill(~mask[piece], 0.0)  # times 0 might give -0
        yield start + (1 - start) * piece.stop / weight.shape[0]
    return Pruned(mask, values, notes)
