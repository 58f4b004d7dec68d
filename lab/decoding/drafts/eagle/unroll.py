"""The head on whole texts as it will draft: some of its inputs are its own estimates.

Pass 1 reads the target's features. Pass k reads, at position s, the estimate of pass k - 1 for it, and attends to what
would be in the cache then: true entries before s - k + 1, entry j of its own chain at s - k + j. All positions are
drafted at once ("training-time test", EAGLE-3, Li et al. 2025, arXiv 2503.01840; HASS, Zhang et al. 2024).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lab.decoding.drafts.eagle.head import EagleHead


def unroll(head: EagleHead, ids: Tensor, features: Tensor, depths: int) -> list[Tensor]:
    """The estimates of f_{s+1} at draft depth 1 to `depths`.

    Args:
        ids: (text, position): x_{s+1}.
        features: (text, position, hidden): f_s.

    Returns:
        `depths` tensors (text, position, hidden). Depth k means something from position k - 1 on.
    """
    count = ids.shape[1]
    cos, sin = head.rotary(torch.arange(count, device=ids.device))
    square = torch.ones(count, count, dtype=torch.bool, device=ids.device)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    found: list[Tensor] = []
    for depth in range(1, depths + 1):
        given = features if depth == 1 else torch.cat((features[:, :1], found[-1][:, :-1]), dim=1)
        hidden = head.fuse(ids, given)
        query, key, value = head.project(hidden, cos, sin)
        keys.append(key)
        values.append(value)
        # (text, kv_head, group, position, position + depth - 1): the true entries, then the chain's own.
        scores = query @ keys[0][:, :, None].transpose(-1, -2)
        scores = scores.masked_fill(square.triu(2 - depth), -torch.inf)
        own = [_shifted(keys[j], depth - 1 - j) for j in range(1, depth)]
        shorter = [(query * k[:, :, None]).sum(-1, keepdim=True) for k in own]
        for j, extra in enumerate(shorter, start=1):
            extra[:, :, :, : depth - 1 - j] = -torch.inf
        weights = torch.softmax(torch.cat((scores, *shorter), dim=-1), dim=-1)
        read = weights[..., :count] @ values[0][:, :, None]
        for j in range(1, depth):
            read = read + weights[..., count + j - 1, None] * _shifted(values[j], depth - 1 - j)[:, :, None]
        found.append(head.finish(hidden, read))
    return found


def _shifted(x: Tensor, steps: int) -> Tensor:
    """(text, kv_head, position, head_dim) moved `steps` positions later; what comes in at the start is masked."""
    if not steps:
        return x
    return torch.cat((x[:, :, :1].expand(-1, -1, steps, -1), x[:, :, :-steps]), dim=2)
