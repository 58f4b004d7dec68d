"""Adapters for tests: any machine makes the same."""

from __future__ import annotations

import random
from dataclasses import replace

import torch
from torch import Tensor, nn

from lab.lora.adapter import Adapter, Factors, LoraConfig, new_adapter

LLAMA = ("q_proj", "v_proj", "o_proj", "gate_proj", "down_proj")
GPT2 = ("c_attn", "c_proj", "c_fc")
IDS = tuple(range(3, 24))


def exact(rows: int, columns: int, seed: int) -> Tensor:
    """(rows, columns) fp32: whole 64ths from -1 to 1, so that small sums of products are exact anywhere."""
    data = random.Random(seed).randbytes(rows * columns)
    return (torch.tensor(list(data), dtype=torch.float32).view(rows, columns) % 129 - 64) / 64


def trained(
    model: nn.Module,
    targets: tuple[str, ...] = LLAMA,
    *,
    rank: int = 4,
    alpha: float = 8,
    rslora: bool = False,
    seed: int = 1,
    name: str = "made",
    size: float = 0.25,
) -> Adapter:
    """An adapter as training might leave it: B is not zero."""
    fresh = new_adapter(model, LoraConfig(rank, alpha, targets, rslora), seed, name=name)
    tensors = {
        module: Factors(a, exact(b.shape[0], b.shape[1], seed * 1000 + index) * size)
        for index, (module, (a, b)) in enumerate(fresh.tensors.items())
    }
    return replace(fresh, tensors=tensors)


def logits(model: nn.Module, ids: tuple[int, ...] = IDS) -> Tensor:
    with torch.inference_mode():
        output: Tensor = model(torch.tensor([ids])).logits[0]
    return output


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies: to see later that nothing was written."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def unchanged(model: nn.Module, before: dict[str, Tensor]) -> bool:
    now = model.state_dict()
    return now.keys() == before.keys() and all(torch.equal(now[name], tensor) for name, tensor in before.items())
