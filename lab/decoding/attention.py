"""Attention of a few rows over what the cache holds, with its weights."""

from __future__ import annotations

import torch
from torch import Tensor


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(queries keys^T * scale + mask) values (Vaswani et al., "Attention Is All You Need", 2017).

    Args:
        queries: (..., row, head_dim). With grouped queries the rows are the query heads that share a
            key/value head, so that no key is repeated.
        keys, values: (..., position, head_dim).
        mask: (..., row, position), added to the scores; None where every row reads every position.

    Returns:
        (..., row, head_dim) outputs, and the (..., row, position) weights; each row of them sums to 1.
    """
    scores = torch.matmul(queries, keys.transpose(-1, -2)) * scale
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights, values), weights
