"""Magnitude pruning: the weights closest to zero go (Han et al. 2015). It knows nothing of what the layer reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.pruning.apply import check_matrix, masked
from lab.pruning.method import Pruning
from lab.pruning.pattern import Pattern


@dataclass(frozen=True)
class Magnitude:
    """Prune the lowest |W_ij|, within the matrix, each row or each group of m.

    Attributes:
        pattern: how many, and among which.
    """

    pattern: Pattern = field(default_factory=Pattern)

    name: ClassVar[str] = "magnitude"
    label: ClassVar[str] = "Magnitude"
    wants_inputs: ClassVar[bool] = False
    wants_hessian: ClassVar[bool] = False

    def prune(self, weight: Tensor, inputs: LayerInputs | None = None) -> Pruning:
        """Prune `weight`, (out, in); see `Method`. `inputs` are not used."""
        del inputs
        check_matrix(weight, self.pattern)
        yield 0.0
        return (yield from masked(weight, lambda rows: weight.detach()[rows].float().abs(), self.pattern))
