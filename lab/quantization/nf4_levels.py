"""NF4's levels beside the weights they stand for, at screen size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.models.linear import check_weight
from lab.quantization.nf4 import scaled_to_blocks
from lab.quantization.normal_float import normal_float_borders, normal_float_levels

MOST = 1 << 20
"""Weights that are looked at; of a larger matrix so many, in blocks evenly taken."""


@dataclass(frozen=True)
class Levels:
    """Levels against weights. All positions are shares of the block's largest magnitude, -1 to 1.

    Attributes:
        levels: the 16 levels.
        borders: the 15 places half way between them.
        edges: bins + 1 edges of the histogram.
        counts: weights in each bin.
        used: for each level, the weights that go to it.
        even: the same for 16 evenly spaced levels from -1 to 1, to compare with.
        counted: weights looked at.
        weights: weights of the matrix.
    """

    levels: tuple[float, ...]
    borders: tuple[float, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    used: tuple[int, ...]
    even: tuple[int, ...]
    counted: int
    weights: int


def levels(weight: Tensor, block: int = 64, bins: int = 128) -> Levels:
    """Where the weights of a matrix lie among the levels, each scaled by its block's largest magnitude.

    Args:
        weight: (out, in), any floating dtype.
        block: as for `Nf4`.
        bins: of the histogram, 2 to 1024.

    Raises:
        BadInput: a weight that is not finite, or another number of bins.
    """
    if not 2 <= bins <= 1024:
        raise BadInput(f"A histogram of {bins} bins cannot be drawn.", remedy="Choose 2 to 1024.")
    check_weight(weight)
    flat = weight.detach().reshape(-1)
    step = -(-flat.numel() // MOST)
    if step > 1:
        flat = flat[: flat.numel() // block * block].view(-1, block)[::step].reshape(-1)
    scaled, _ = scaled_to_blocks(flat, block)
    even = torch.linspace(-1.0, 1.0, 16)
    return Levels(
        levels=tuple(normal_float_levels().tolist()),
        borders=tuple(normal_float_borders().tolist()),
        edges=tuple(torch.linspace(-1.0, 1.0, bins + 1).tolist()),
        counts=tuple(int(n) for n in torch.histc(scaled.cpu(), bins, -1.0, 1.0).tolist()),
        used=_used(scaled, normal_float_borders()),
        even=_used(scaled, (even[:-1] + even[1:]) / 2),
        counted=scaled.numel(),
        weights=weight.numel(),
    )


def _used(scaled: Tensor, borders: Tensor) -> tuple[int, ...]:
    return tuple(torch.bincount(torch.bucketize(scaled, borders.to(scaled.device)), minlength=16).tolist())
