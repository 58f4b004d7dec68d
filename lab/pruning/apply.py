"""From scores to the result of a method that keeps weights as they are; and what each method checks first."""

from __future__ import annotations

import torch
from torch import Tensor

from lab.models.linear import check_weight
from lab.pruning.choose import choosing
from lab.pruning.method import Pruned, Pruning
from lab.pruning.pattern import Pattern
from lab.pruning.threshold import row_pieces
from lab.steps import relay

_CHOSEN = 0.8  # of the time


def check_matrix(weight: Tensor, pattern: Pattern) -> None:
    """Refuse what cannot be pruned.

    Raises:
        BadInput: no matrix of finite numbers in fp32's range, an empty one, or a width that N:M does not divide.
    """
    check_weight(weight)
    pattern.check(weight.shape[1])


def masked(
    weight: Tensor, scores: Tensor, pattern: Pattern, *, start: float = 0.0, notes: tuple[str, ...] = ()
) -> Pruning:
    """Set the weights with the lowest scores to 0.

    Args:
        weight: (out, in), any floating dtype; not changed.
        scores: (out, in), 0 or more; not needed afterwards.
        start: the share that was done before, 0 to 1.

    Raises:
        BadInput: see `choosing`.
    """
    rest = 1 - start
    mask = (yield from relay(choosing(scores, pattern), lambda share: start + rest * _CHOSEN * share)).logical_not_()
    values = torch.empty(weight.shape, dtype=torch.float32, device=weight.device)
    for piece in row_pieces(*weight.shape):
        values[piece] = weight.detach()[piece].float().masked_fill(~mask[piece], 0.0)  # times 0 might give -0
        yield start + rest * (_CHOSEN + (1 - _CHOSEN) * piece.stop / weight.shape[0])
    return Pruned(mask, values, notes)
