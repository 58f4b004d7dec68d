"""The lesson's three-token example, from the decoder's own attention."""

from __future__ import annotations

import pytest
import torch

import lab.kv_cache.example as example
from lab.decoding import attention, llama_layer

OUTPUTS = [(1.00, 0.00), (0.33, 1.34), (0.75, 1.50)]


def test_the_outputs_are_those_of_the_text() -> None:
    steps = example.three_token_example()
    assert [tuple(round(x, 2) for x in step.output) for step in steps] == OUTPUTS
    assert [len(step.keys) for step in steps] == [len(step.values) for step in steps] == [1, 2, 3]
    assert [(s.computed, s.computed_without) for s in steps] == [(1, 1), (1, 2), (1, 3)]
    assert steps[2].values == ((1, 0), (0, 2), (1, 2))


def test_each_row_is_that_of_full_causal_attention() -> None:
    for step in example.three_token_example():
        assert step.output == pytest.approx(step.full_row, abs=1e-12)
        assert sum(step.weights) == pytest.approx(1, abs=1e-12)


def test_a_cache_that_forgets_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return attention.attend(queries, keys[:, :, -1:], values[:, -1:])

    monkeypatch.setattr(example, "attend", forgetful)
    last = example.three_token_example()[2]
    assert last.output != pytest.approx(last.full_row, abs=1e-3)


def test_the_example_and_the_decoder_share_their_attention() -> None:
    assert example.attend is attention.attend is llama_layer.attend


def test_attend_is_attention_for_grouped_queries() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    out, weights = attention.attend(q / 8**0.5, k.transpose(1, 2), v)
    assert torch.allclose(out, torch.nn.functional.scaled_dot_product_attention(q, k, v), atol=1e-6)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3))
