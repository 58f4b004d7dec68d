"""Random pruning: what every other method must beat."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.pruning.apply import check_matrix, masked
from lab.pruning.method import Pruning
from lab.pruning.pattern import Pattern

_SEED_BITS, _NAME_BITS = 63, 31
MOST_SEED = 2**_SEED_BITS - 1


@dataclass(frozen=True)
class Random:
    """Prune weights drawn at random, each as likely as the others.

    Attributes:
        pattern: how many, and among which.
        seed: 0 to 2^63 - 1. The same seed and shape give the same mask on every device: the matrices of a model
            need a seed each (`of_matrix`), or those of one shape are pruned alike.

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

    def of_matrix(self, name: str) -> Random:
        """The same method with the seed of one matrix of a model: another one for each name."""
        # Of the seed's 63 bits turned round the lowest are zero for seeds below 2^32: the name takes their place.
        turned = (self.seed << _NAME_BITS | self.seed >> _SEED_BITS - _NAME_BITS) & MOST_SEED
        return replace(self, seed=turned ^ zlib.crc32(name.encode()) >> 1)

    def prune(self, weight: Tensor, inputs: LayerInputs | None = None) -> Pruning:
        """Prune `weight`, (out, in); see `Method`. `inputs` are not used."""
        del inputs
        check_matrix(weight, self.pattern)
        generator = torch.Generator().manual_seed(self.seed)  # of the CPU: other devices draw other numbers
        yield 0.0

        def score(rows: slice) -> Tensor:
            return torch.rand((rows.stop - rows.start, weight.shape[1]), generator=generator).to(weight.device)

        return (yield from masked(weight, score, self.pattern))
