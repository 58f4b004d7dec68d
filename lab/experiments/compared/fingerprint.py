"""Whether the shared model is what it was: its weights, and which of them are one tensor."""

from __future__ import annotations

import hashlib
from collections.abc import Generator

import torch
from torch import nn

_HASHED = 1 << 25


def fingerprint(model: nn.Module) -> Generator[None, None, str]:
    """sha256 over all parameters and buffers, tied ones once; pauses every 32 MiB."""
    digest = hashlib.sha256()
    seen: set[int] = set()
    since = 0
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) in seen or not tensor.numel():
            continue
        seen.add(id(tensor))
        flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        for start in range(0, flat.numel(), _HASHED):
            piece = flat[start : start + _HASHED]
            digest.update(piece.numpy().tobytes())
            since += piece.numel()
            if since >= _HASHED:
                since = 0
                yield
    return digest.hexdigest()


def ties(model: nn.Module) -> bool | None:
    """Whether the head and the embedding are one tensor; None where the model has no two such modules."""
    get_in = getattr(model, "get_input_embeddings", lambda: None)
    get_out = getattr(model, "get_output_embeddings", lambda: None)
    one, other = get_in(), get_out()
    if one is None or other is None:
        return None
    return bool(one.weight.data_ptr() == other.weight.data_ptr())
