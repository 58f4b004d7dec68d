"""The tiny models that other tests use are what they claim to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny_models import CONFIGS

from lab.models.loading import LoadedModel


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_loads_and_generates(tiny: Callable[..., LoadedModel], kind: str) -> None:
    loaded = tiny(kind)
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert loaded.end_token_ids == {2}
    ids = loaded.tokenizer("the cache", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        logits = loaded.model(ids).logits
    assert logits.shape == (1, ids.shape[1], 320)
    assert logits.std() > 0.1  # far from uniform, so greedy choices are not decided by rounding
