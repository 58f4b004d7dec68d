"""Random pruning: what every other method must beat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.pruning.apply import check_matrix, masked
from lab.pruning.method import Pruning
from lab.pruning.pattern import Pattern

MOST_SEED = 2**63 - 1


@dataclass(frozen=True)
class Random:
    """Prune weights drawn at random, each as likely as the others.

    Attributes:
        pattern: how many, and among which.
        seed: 0 to 2^63 - 1. The same seed and shape give the same mask on every device: the matrices of a model
            need a seed each, or those of one shape are pruned alike.

    Raises:
        BadInput: a seed outside its limits.
    """

    pattern: Pattern = field(default_factory=Pattern)
    seed: int = 0

    name: ClassVar[str] = "random"
    label: ClassVar[str] = "Random"
    wants_inputs: ClassVar[bool] = False
    wants_hessian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed <= MOST_SEED:
            raise BadInput(f"A seed is 0 to 2^63 - 1, not {shown(self.seed)}.", remedy="Choose 0.")

    def prune(self, weight: Tensor, inputs: LayerInputs | None = None) -> Pruning:
        """Prune `weight`, (out, in); see `Method`. `inputs` are not used."""
        del inputs
        check_matrix(weight, self.pattern)
        generator = torch.Generator().manual_seed(self.seed)  # of the CPU: other devices draw other numbers
        scores = torch.rand(weight.shape, generator=generator).to(weight.device)
        yield 0.2
        return (yield from masked(weight, scores, self.pattern, start=0.2))
