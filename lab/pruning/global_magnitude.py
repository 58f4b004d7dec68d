"""Magnitude pruning of a whole model with one threshold: layers with small weights lose more than others.

Not a `Method`: no matrix can be pruned without the others. The weights are read twice for the threshold and once for
the masks; no copy of all of them is made or sorted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.models.linear import check_weight
from lab.pruning.choose import below
from lab.pruning.pattern import Pattern
from lab.pruning.threshold import kth_smallest, row_pieces
from lab.steps import relay

NAME: Final = "global_magnitude"
LABEL: Final = "Magnitude, one threshold for the model"

_THRESHOLD = 0.7  # of the time


@dataclass(frozen=True)
class GlobalMasks:
    """The masks of a model.

    Attributes:
        masks: by name, in the order of the names: (out, in) bool, True where a weight is kept.
        threshold: |w| of the largest weight that is pruned; 0 if none is.
        pruned: weights that are pruned in all, exactly `Pattern.pruned_of(total)`.
        total: weights in all.
        notes: matrices that lost all their weights.
    """

    masks: dict[str, Tensor]
    threshold: float
    pruned: int
    total: int
    notes: tuple[str, ...] = ()

    @property
    def sparsity(self) -> float:
        """Share of all weights that are pruned, as counted."""
        return self.pruned / self.total


def global_magnitude(weights: Mapping[str, Tensor], sparsity: float) -> Generator[float, None, GlobalMasks]:
    """Prune the weights with the lowest |w| of all matrices together.

    Of equal ones those of the earlier name (names sorted as text, whatever the mapping's order) go first, and within a
    matrix the earlier by row, then column.

    Args:
        weights: (out, in) by name, any floating dtype; not changed. A tensor that is given under two names counts
            twice.
        sparsity: 0 to 1.

    Yields:
        The share done, every few ms.

    Raises:
        BadInput: no weights, a sparsity outside its limits, or a matrix that cannot be pruned, with its name.
    """
    count = Pattern(sparsity)
    if not weights:
        raise BadInput("There are no weights to prune.", remedy="Choose at least one matrix.")
    ordered = {name: weights[name].detach() for name in sorted(weights)}
    for name, weight in ordered.items():
        check_weight(weight, name)
        yield 0.0
    total = sum(weight.numel() for weight in ordered.values())
    wanted = count.pruned_of(total)

    def pieces() -> Iterator[Tensor]:
        for weight in ordered.values():
            for piece in row_pieces(*weight.shape):
                yield weight[piece]

    threshold = yield from relay(kth_smallest(pieces, wanted, total), lambda share: _THRESHOLD * share)
    masks: dict[str, Tensor] = {}
    ties, seen, pruned = threshold.ties, 0, 0
    for name, weight in ordered.items():
        masks[name] = torch.empty(weight.shape, dtype=torch.bool, device=weight.device)
        for piece in row_pieces(*weight.shape):
            gone, ties = below(weight[piece], threshold, ties)
            pruned += int(gone.sum())
            masks[name][piece] = ~gone
            seen += gone.numel()
            yield _THRESHOLD + (1 - _THRESHOLD) * seen / total
    empty = [name for name, mask in masks.items() if not bool(mask.any())]
    notes = (f"{len(empty)} of {len(masks)} matrices lost all weights, {empty[0]} first.",) if empty else ()
    return GlobalMasks(masks, threshold.value, pruned, total, notes)
