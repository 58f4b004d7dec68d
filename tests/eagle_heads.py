"""Draft heads for tiny models, as after training: their layer does something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lab.decoding.drafts.eagle.head import EagleHead, new_head

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

ROWS = list(range(0, 320, 2))


def busy_head(loaded: LoadedModel, seed: int = 3) -> EagleHead:
    """A head that says the even tokens, with random weights large enough to matter."""
    head = new_head(loaded.model, ROWS, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in head.parameters():
            if weight.dim() == 2:
                weight.normal_(0.0, 0.15, generator=generator)
    return head.requires_grad_(False)
