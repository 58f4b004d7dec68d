"""What the tests of calibrated methods share: random layers with correlated inputs, and generators run to their end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.quantization.affine import affine_of, decode_groups, encode_groups, grouped, ungrouped
from lab.quantization.grid import Grid

T = TypeVar("T")


def end(steps: Generator[Any, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            value: T = stop.value
            return value


def layer(rows: int, width: int, *, tokens: int = 400, seed: int = 0) -> tuple[Tensor, LayerInputs]:
    """A random matrix, and inputs of very different sizes that depend on one another."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, width, generator=g)
    few = max(1, width // 4)
    x = torch.randn(tokens, few, generator=g) @ torch.randn(few, width, generator=g) / few**0.5
    x = (x + 0.3 * torch.randn(tokens, width, generator=g)) * torch.rand(width, generator=g).mul(2).exp()
    return weight, inputs_of(x)


def inputs_of(x: Tensor) -> LayerInputs:
    return LayerInputs(len(x), 2.0 * x.t() @ x / len(x), x.abs().mean(dim=0), x.square().mean(dim=0), x)


def nearest(weight: Tensor, grid: Grid) -> Tensor:
    """Round to nearest, by the shared arithmetic alone."""
    affine = affine_of(weight, grid)
    return ungrouped(
        decode_groups(encode_groups(grouped(weight, grid), affine, grid), affine, grid),
        (weight.shape[0], weight.shape[1]),
    )


def output_square(weight: Tensor, other: Tensor, inputs: LayerInputs) -> float:
    return float(((weight - other) @ inputs.rows.t()).double().square().sum()) / len(inputs.rows)
