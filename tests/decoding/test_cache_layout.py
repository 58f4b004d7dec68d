"""Which models are refused, and the layer with room."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, MambaConfig, T5Config, T5ForConditionalGeneration
from transformers.cache_utils import DynamicLayer

from lab.decoding.cache_layout import layer_tensors, new_cache, total_bytes
from lab.decoding.room import RoomyLayer
from lab.errors import ModelError


def test_models_without_attention_caches_are_refused_by_name() -> None:
    mamba = AutoModelForCausalLM.from_config(MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1))
    with pytest.raises(ModelError, match="MambaForCausalLM has no attention key/value cache"):
        new_cache(mamba, 4)
    t5 = T5ForConditionalGeneration(T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    with pytest.raises(ModelError, match="T5ForConditionalGeneration has an encoder"):
        new_cache(t5, 4)
    with pytest.raises(ModelError, match="Linear is not a model of transformers"):
        new_cache(nn.Linear(2, 2), 4)


def _tokens(count: int, value_dim: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(1, 2, count, 4), torch.randn(1, 2, count, value_dim)


@pytest.mark.parametrize("value_dim", [4, 6])
def test_a_roomy_layer_holds_what_transformers_own_layer_holds(value_dim: int) -> None:
    roomy, plain = RoomyLayer(8), DynamicLayer()
    for count in (3, 1, 1, 9, 2):  # the fourth passes the room
        keys, values = _tokens(count, value_dim)
        got, expected = roomy.update(keys, values), plain.update(keys, values)
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])
        assert roomy.get_seq_length() == plain.get_seq_length()
        assert roomy.get_mask_sizes(2) == plain.get_mask_sizes(2)
    for layer in (roomy, plain):
        layer.crop(-5)
        layer.batch_repeat_interleave(2)
        layer.reorder_cache(torch.tensor([1, 0]))
        layer.update(torch.ones(2, 2, 1, 4), torch.ones(2, 2, 1, value_dim))
    assert torch.equal(roomy.keys, plain.keys)  # type: ignore[arg-type]
    assert torch.equal(roomy.values, plain.values)  # type: ignore[arg-type]


def test_room_is_written_in_place_until_it_is_passed() -> None:
    layer = RoomyLayer(4)
    layer.update(*_tokens(3))
    before = layer.key_buffer
    layer.update(*_tokens(1))
    assert layer.key_buffer is before
    layer.update(*_tokens(1))
    assert layer.key_buffer is not before
    layer.reset()
    assert layer.length == 0


def test_bytes_held_and_bytes_reserved(tiny) -> None:  # type: ignore[no-untyped-def]
    cache = new_cache(tiny("llama").model, 10)
    assert total_bytes(cache) == (0, 0)
    for layer in cache.layers:
        layer.update(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8))
    assert [(t.positions, t.kind, t.bytes, t.reserved_bytes) for t in layer_tensors(cache)] == [
        (3, "full", 2 * 2 * 3 * 8 * 4, 2 * 2 * 10 * 8 * 4)
    ] * 2
