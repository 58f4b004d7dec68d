"""What is known of a linear layer's inputs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LayerInputs:
    """What calibration text sends into one linear layer.

    Attributes:
        tokens: positions seen, padding not among them.
        hessian: (in, in) fp32: the mean over positions of 2 x x^T. None where it was not asked for.
        mean_abs: (in,) fp32: the mean of |x_j|.
        mean_square: (in,) fp32: the mean of x_j^2; times `tokens` it is Wanda's ||X_j||^2.
        rows: (kept, in) fp32: some of the inputs themselves, evenly taken, to measure output errors on.
    """

    tokens: int
    hessian: Tensor | None
    mean_abs: Tensor
    mean_square: Tensor
    rows: Tensor
