"""A mask that is given: one made elsewhere, or with all matrices of a model in view."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput
from lab.models.linear import check_weight
from lab.pruning.apply import kept_values
from lab.pruning.method import Pruning
from lab.pruning.pattern import Pattern


@dataclass(frozen=True)
class Given:
    """The method. See `lab.pruning.method.Method`.

    Attributes:
        mask: (out, in) bool: True where a weight is kept.
    """

    mask: Tensor = field(repr=False)

    name: ClassVar[str] = "given"
    label: ClassVar[str] = "A given mask"
    wants_inputs: ClassVar[bool] = False
    wants_hessian: ClassVar[bool] = False

    @property
    def pattern(self) -> Pattern:
        """The share that the mask prunes."""
        return Pattern(1 - int(self.mask.sum()) / self.mask.numel())

    def prune(self, weight: Tensor, inputs: LayerInputs | None = None) -> Pruning:
        """See `Method`.

        Raises:
            BadInput: also a mask of another shape.
        """
        del inputs
        check_weight(weight)
        if self.mask.shape != weight.shape or self.mask.dtype != torch.bool:
            raise BadInput(
                f"A mask of {tuple(self.mask.shape)} {self.mask.dtype} does not fit a weight of {tuple(weight.shape)}.",
                remedy="Give one truth value for each weight, (out, in).",
            )
        yield 0.0
        return (yield from kept_values(weight, self.mask))
