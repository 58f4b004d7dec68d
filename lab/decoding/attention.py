"""Attention of the newest token over what the cache holds: the fast path's, and the lesson's example's."""

from __future__ import annotations

import torch
from torch import Tensor


def attend(queries: Tensor, keys_across: Tensor, values: Tensor, *, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """softmax(queries keys^T) values, every row reading every position (Vaswani et al. 2017).

    Args:
        queries: (kv_head, row, head_dim), already divided by sqrt(head_dim). The rows are the query heads
            that share a key/value head, so that no key is repeated.
        keys_across: (kv_head, head_dim, position).
        values: (kv_head, position, head_dim).
        out: where to put the outputs; None for a fresh tensor.

    Returns:
        (kv_head, row, head_dim) outputs, and (kv_head, row, position) weights, a fresh tensor; each row sums to 1.
    """
    scores = torch.bmm(queries, keys_across)
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(values.dtype)
    return torch.bmm(weights, values, out=out), weights
