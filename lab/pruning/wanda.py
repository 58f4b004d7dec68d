"""Wanda: a weight counts as much as what it multiplies (Sun et al. 2023, "A simple and effective pruning approach").

The score of W_ij is |W_ij| * ||X_j||_2, the norm over the calibration positions of input j. Weights are compared within
an output row (or a group of m): every output keeps as many. What is left is not changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput
from lab.pruning.apply import check_matrix, masked
from lab.pruning.method import Pruning
from lab.pruning.pattern import Pattern


@dataclass(frozen=True)
class Wanda:
    """Prune the lowest |W_ij| * ||X_j||_2 of each row or group.

    Attributes:
        pattern: how many; its scope is "row" unless it is N:M.

    Raises:
        BadInput: a pattern that compares within the whole matrix.
    """

    pattern: Pattern = field(default_factory=lambda: Pattern(scope="row"))

    name: ClassVar[str] = "wanda"
    label: ClassVar[str] = "Wanda"
    wants_inputs: ClassVar[bool] = True
    wants_hessian: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.pattern.m and self.pattern.scope != "row":
            raise BadInput(
                f"Wanda compares weights within a row, not within the {self.pattern.scope}.", remedy='Choose "row".'
            )

    def prune(self, weight: Tensor, inputs: LayerInputs | None = None) -> Pruning:
        """Prune `weight`, (out, in); see `Method`. Without any input that is not 0 it is magnitude pruning.

        Raises:
            BadInput: besides, inputs that are missing, of another width, or not finite.
        """
        check_matrix(weight, self.pattern)
        yield 0.0
        norms, dead = input_norms(inputs, weight.shape[1])
        norms = norms.to(weight.device)

        def score(rows: slice) -> Tensor:
            return weight.detach()[rows].float().abs() * norms

        return (yield from masked(weight, score, self.pattern, notes=_notes(inputs, dead)))


def input_norms(inputs: LayerInputs | None, columns: int) -> tuple[Tensor, int]:
    """||X_j||_2 relative to the largest, (in,) fp32, and how many are 0; all 1 if all are 0.

    As a share of the largest they can neither overflow nor, where all are equal, round two magnitudes to one score.

    Raises:
        BadInput: no inputs, inputs of another width or not finite.
    """
    if inputs is None:
        raise BadInput("Wanda needs a layer's calibration inputs.", remedy="Calibrate on a text first.")
    square = inputs.mean_square
    if square.shape != (columns,):
        raise BadInput(
            f"Inputs of {len(square)} channels do not fit a weight with {columns} inputs.",
            remedy="Calibrate this very layer.",
        )
    bad = ~(torch.isfinite(square) & (square >= 0))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise BadInput(
            f"The mean square of input {first} is {float(square[first])}, no finite number.",
            remedy="Use a model whose activations are finite in fp32, or another text.",
        )
    norms = square.float().sqrt()
    most = float(norms.max())
    if most == 0:
        return torch.ones_like(norms), columns
    return norms / most, int((norms == 0).sum())


def _notes(inputs: LayerInputs | None, dead: int) -> tuple[str, ...]:
    if inputs is None or not dead:
        return ()
    of = len(inputs.mean_square)
    if dead < of:
        return (f"{dead:,} of {of:,} inputs were always 0; their weights are pruned first.",)
    why = "no calibration token reached this layer" if inputs.tokens == 0 else "all inputs were always 0"
    return (f"Pruned by magnitude alone: {why}.",)
