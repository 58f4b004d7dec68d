"""What every method and every packing checks first."""

from __future__ import annotations

import torch
from torch import Tensor

from lab.errors import BadInput

SMALLEST_NORMAL = float(torch.finfo(torch.float32).tiny)
"""A scale below it would lose its bits: what it scales is taken as constant instead."""


def check_weight(weight: Tensor, name: str = "The matrix") -> None:
    """Refuse what cannot be quantized.

    Raises:
        BadInput: not a matrix of finite numbers in fp32's range, or an empty one; the first bad place is named.
    """
    if weight.dim() != 2 or not weight.dtype.is_floating_point or not weight.numel():
        raise BadInput(
            f"{name} is no matrix of floating numbers but {tuple(weight.shape)} {weight.dtype}.",
            remedy="Give weights of shape (out, in).",
        )
    # A sum is finite only if all are, or by overflow; so only a suspect is looked at closely.
    if torch.isfinite(weight.sum(dtype=torch.float32)):
        return
    bad = ~torch.isfinite(weight.float())
    if bool(bad.any()):
        row, column = (int(i) for i in bad.nonzero()[0])
        raise BadInput(
            f"{name} has {int(bad.sum()):,} weights that are not finite; the first is {weight[row, column].item()} at "
            f"row {row}, column {column}.",
            remedy="Use a model whose weights are finite.",
        )
