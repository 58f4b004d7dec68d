"""The three-token example of the lesson, worked step by step by the decoder's own attention.

One head of size 2. Queries and keys are the inputs, values are the inputs with the second number doubled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lab.decoding.attention import attend

TOKENS = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))

Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class ExampleStep:
    """One token arrives.

    Attributes:
        keys, values: the cache after the step, one pair a position.
        scores: query times each key, divided by the square root of 2.
        weights: softmax of the scores; they sum to 1.
        output: the weights times the values.
        full_row: the same row of causal attention over all three tokens, computed from scratch.
        computed: keys and values made in this step with the cache.
        computed_without: those that a run without the cache makes in this step.
    """

    token: Pair
    query: Pair
    key: Pair
    value: Pair
    keys: tuple[Pair, ...]
    values: tuple[Pair, ...]
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    output: Pair
    full_row: Pair
    computed: int
    computed_without: int


def value_of(token: Tensor) -> Tensor:
    """The example's values: (..., 2) inputs with the second number doubled."""
    return token * torch.tensor([1.0, 2.0], dtype=token.dtype)


def three_token_example() -> tuple[ExampleStep, ...]:
    """The steps, in float64. The outputs are (1, 0), (0.33, 1.34) and (0.75, 1.50), rounded."""
    inputs = torch.tensor(TOKENS, dtype=torch.float64)
    scale = 1 / math.sqrt(2)
    full = scaled_dot_product_attention(inputs[None], inputs[None], value_of(inputs)[None], is_causal=True)[0]
    keys = values = inputs[:0]
    steps = []
    for t in range(3):
        token = inputs[t : t + 1]
        keys, values = torch.cat([keys, token]), torch.cat([values, value_of(token)])
        output, weights = attend(scale * token[None], keys.T[None], values[None])
        steps.append(
            ExampleStep(
                token=_pair(token[0]),
                query=_pair(token[0]),
                key=_pair(token[0]),
                value=_pair(value_of(token)[0]),
                keys=tuple(_pair(k) for k in keys),
                values=tuple(_pair(v) for v in values),
                scores=tuple((scale * (keys @ token[0])).tolist()),
                weights=tuple(weights[0, 0].tolist()),
                output=_pair(output[0, 0]),
                full_row=_pair(full[t]),
                computed=1,
                computed_without=t + 1,
            )
        )
    return tuple(steps)


def _pair(row: Tensor) -> Pair:
    first, second = row.tolist()
    return (first, second)
