"""The contract of a pruning method: one weight matrix, with what is known of its inputs, to a mask and new weights.

A method is a small frozen dataclass that holds its settings. `prune` is a generator that pauses at least every 100 ms
of work on a matrix of the default model, yields the share done (0 to 1) and returns the result. It never changes the
weight it is given. Counts are exact: `Pattern.pruned_of` weights go, in each row, matrix or group of m; among equal
scores the earlier weight (by row, then column) is pruned first. Nothing here knows of models.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.pruning.pattern import Pattern


@dataclass(frozen=True)
class Pruned:
    """The result of a method.

    Attributes:
        mask: (out, in) bool: True where a weight is kept.
        values: (out, in) fp32: the weights as they now count: 0 where pruned; elsewhere the old weight, or the one
            that the method put in its place.
        notes: what a reader must know of this matrix: a fallback taken, damping used.
    """

    mask: Tensor
    values: Tensor
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> int:
        """Weights that are kept."""
        return int(self.mask.sum())

    @property
    def sparsity(self) -> float:
        """Share of the weights that are pruned, as counted."""
        return 1 - self.kept / self.mask.numel()


Pruning = Generator[float, None, Pruned]


class Method(Protocol):
    """A pruning method with its settings.

    Attributes:
        name: in snake case, as on the command line.
        label: as on screen.
        wants_inputs, wants_hessian: whether `prune` needs `inputs`, and their `hessian`.
    """

    name: ClassVar[str]
    label: ClassVar[str]

    @property
    def pattern(self) -> Pattern: ...

    @property
    def wants_inputs(self) -> bool: ...

    @property
    def wants_hessian(self) -> bool: ...

    def prune(self, weight: Tensor, inputs: LayerInputs | None = None) -> Pruning:
        """Prune `weight`, (out, in), any floating dtype.

        Raises:
            BadInput: a weight that is not finite, a pattern that does not fit, or inputs that are missing.
        """
        ...
