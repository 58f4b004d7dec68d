"""Sampling equals transformers' warpers and draws."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from lab.decoding.sampling import Sampling, choose, filtered
from lab.errors import BadInput


def _reference(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    warpers = LogitsProcessorList()
    if sampling.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    return warpers(torch.zeros(1, 1, dtype=torch.long), logits[None])[0]


@given(
    vocab=st.integers(2, 60),
    seed=st.integers(0, 999),
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 70),
    top_p=st.floats(0.01, 1),
    levels=st.integers(1, 6),
)
@settings(max_examples=150, deadline=None)
def test_warped_like_transformers_and_drawn_with_the_same_seed(
    vocab: int, seed: int, temperature: float, top_k: int, top_p: float, levels: int
) -> None:
    # Few levels make ties, which decide who stays at top-k's border.
    logits = torch.randint(0, levels, (vocab,), generator=torch.Generator().manual_seed(seed)).float()
    sampling = Sampling(True, temperature, top_k, top_p, seed)
    expected = _reference(logits.clone(), sampling)
    assert torch.equal(filtered(sampling.scaled(logits), sampling), expected)

    token, scaled = choose(logits, sampling, sampling.generator(torch.device("cpu")))
    assert torch.equal(scaled, logits / temperature if temperature != 1.0 else logits)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        drawn = torch.multinomial(torch.softmax(expected[None], -1), 1)
    assert int(token) == int(drawn)


def test_another_order_of_the_warpers_would_be_noticed() -> None:
    """The mutation beside the test above: top-p before top-k keeps other tokens."""
    logits = torch.tensor([4.0, 3.5, 3.0, 0.0])
    sampling = Sampling(True, 1.0, 2, 0.62)
    right = filtered(logits, sampling)
    wrong = filtered(filtered(logits, Sampling(True, 1.0, 0, 0.62)), Sampling(True, 1.0, 2))
    assert not torch.equal(right, wrong)


def test_greedy_takes_the_first_of_equals_and_needs_no_generator() -> None:
    token, _ = choose(torch.tensor([0.0, 2.0, 2.0, 1.0]), Sampling(temperature=0.3), None)
    assert token.tolist() == [1]


def test_drawing_leaves_the_global_generator_alone() -> None:
    sampling = Sampling(True, seed=3)
    before = torch.random.get_rng_state()
    choose(torch.zeros(10), sampling, sampling.generator(torch.device("cpu")))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"seed": 2**70}, "seed is"),
    ],
)
def test_bad_values_are_named(values: dict[str, float], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        Sampling(**values)  # type: ignore[arg-type]
