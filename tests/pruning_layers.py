"""What the tests of calibrated pruning share: random layers with correlated inputs, token windows, logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.calibration.inputs import LayerInputs


def layer(rows: int, width: int, *, tokens: int = 400, seed: int = 0) -> tuple[Tensor, LayerInputs]:
    """A random matrix, and inputs of very different sizes that depend on one another."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, width, generator=g)
    few = max(1, width // 4)
    x = torch.randn(tokens, few, generator=g) @ torch.randn(few, width, generator=g) / few**0.5
    return weight, inputs_of(
        (x + 0.3 * torch.randn(tokens, width, generator=g)) * torch.rand(width, generator=g).mul(2).exp()
    )


def inputs_of(x: Tensor) -> LayerInputs:
    """Of (token, in) inputs."""
    return LayerInputs(len(x), 2.0 * x.t() @ x / len(x), x.abs().mean(dim=0), x.square().mean(dim=0), x)


def output_square(weight: Tensor, other: Tensor, inputs: LayerInputs) -> float:
    """The mean square error of the output, summed over outputs."""
    return float(((weight - other) @ inputs.rows.t()).double().square().sum()) / len(inputs.rows)


def windows(lengths: tuple[int, ...] = (24, 24, 17, 40), seed: int = 1) -> list[list[int]]:
    """Token ids of the tiny models."""
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 300, (n,), generator=g).tolist() for n in lengths]


def logits(model: nn.Module, ids: list[int] | None = None) -> Tensor:
    """(1, position, vocab)."""
    with torch.no_grad():
        found: Tensor = model(input_ids=torch.tensor([ids or windows()[0]])).logits
    return found
