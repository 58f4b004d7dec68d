"""The lesson's small matrix, pruned by the same code as a model's."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lab.pruning.magnitude import Magnitude
from lab.pruning.pattern import Pattern
from lab.steps import finished

Rows = tuple[tuple[float, ...], ...]

MATRIX: Rows = ((0.5, -0.1, 0.3), (0.05, -0.8, 0.2))


@dataclass(frozen=True)
class ExampleMatrix:
    """Magnitude pruning within a matrix, step by step.

    Attributes:
        weights: as given, (out, in).
        magnitudes: |w|.
        ranks: place of each weight, 1 for the first to go.
        pruned: how many go: the sparsity times the number of weights, rounded.
        threshold: |w| of the last that goes; 0 if none does.
        kept: whether a weight is kept.
        became: the weights afterwards.
    """

    weights: Rows
    magnitudes: Rows
    ranks: tuple[tuple[int, ...], ...]
    pruned: int
    threshold: float
    kept: tuple[tuple[bool, ...], ...]
    became: Rows

    @property
    def sparsity(self) -> float:
        """As counted."""
        cells = [kept for row in self.kept for kept in row]
        return 1 - sum(cells) / len(cells)


def magnitude_example(weights: Rows = MATRIX, sparsity: float = 0.5) -> ExampleMatrix:
    """Prune a small matrix; in the result the weights stand as given, not as fp32 has them.

    The ranks are the method's own: the place at which a weight goes when one more at a time is pruned.

    >>> magnitude_example().became
    ((0.5, 0.0, 0.3), (0.0, -0.8, 0.0))
    """
    matrix = torch.tensor(weights)
    cells = matrix.numel()
    masks = [finished(Magnitude(Pattern(count / cells)).prune(matrix)).mask for count in range(cells + 1)]
    ranks = 1 + torch.stack(masks[1:]).sum(dim=0)
    made = finished(Magnitude(Pattern(sparsity)).prune(matrix))
    kept = tuple(tuple(bool(cell) for cell in row) for row in made.mask)
    gone = [abs(w) for row, keep in zip(weights, kept, strict=True) for w, k in zip(row, keep, strict=True) if not k]
    return ExampleMatrix(
        weights=weights,
        magnitudes=tuple(tuple(abs(w) for w in row) for row in weights),
        ranks=tuple(tuple(int(rank) for rank in row) for row in ranks),
        pruned=cells - made.kept,
        threshold=max(gone, default=0.0),
        kept=kept,
        became=tuple(
            tuple(w if k else 0.0 for w, k in zip(row, keep, strict=True))
            for row, keep in zip(weights, kept, strict=True)
        ),
    )
