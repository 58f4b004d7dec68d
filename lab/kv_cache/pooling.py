"""Attention weights at screen size."""

from __future__ import annotations

import torch
from torch import Tensor

MAX_BINS = 128


def max_pool_positions(weights: Tensor, bins: int = MAX_BINS) -> tuple[Tensor, int]:
    """The largest weight in each of at most `bins` bins of equal size.

    A maximum, not a mean: one position read strongly among hundreds must stay visible.

    Args:
        weights: (..., position), not negative.

    Returns:
        (..., bin) weights, and the positions in each bin; the last bin may hold fewer.
    """
    positions = weights.shape[-1]
    size = max(1, -(-positions // bins))
    count = -(-positions // size)
    padded = torch.nn.functional.pad(weights, (0, count * size - positions))
    return padded.reshape(*weights.shape[:-1], count, size).amax(dim=-1), size
