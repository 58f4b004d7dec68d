"""Runs of the `lora` experiment on tiny models, and adapters for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from experiment_runs import Ran, run_experiment

from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.run import make_runner
from lab.lora.adapter import Adapter, Factors, LoraConfig, new_adapter
from lab.lora.peft_files import write_adapter

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

LINES = "\n".join(f"the cache {word} => keeps {word} now" for word in "abcdefghijklmn")
PROMPT = "the cache keeps"


def ran(model: LoadedModel, **values: Any) -> Ran:
    """A short run."""
    return run_experiment(make_runner(), model, params(model, **values))


def params(model: LoadedModel, **values: Any) -> LoraParams:
    small = {"prompt": PROMPT, "max_new_tokens": 8, "heldout_tokens": 32, "chat": model.facts.chat_template}
    return LoraParams(**{**small, **values})


def learn(model: LoadedModel, **values: Any) -> Ran:
    """A short training on the lines above."""
    given = {"task": "train", "learn": "lines", "lines": LINES, "steps": 6, "batch": 4, "rank": 4, **values}
    return ran(model, **given)


def made(
    model: LoadedModel,
    *,
    targets: tuple[str, ...] = ("q_proj", "v_proj", "down_proj"),
    rank: int = 4,
    size: float = 0.2,
    seed: int = 1,
    name: str = "made",
) -> Adapter:
    """An adapter with an effect."""
    facts = model.facts
    fresh = new_adapter(
        model.model,
        LoraConfig(rank, 2 * rank, targets),
        seed,
        name=name,
        model_id=facts.id,
        weight_hash=facts.weight_hash,
    )
    dice = torch.Generator().manual_seed(seed)
    tensors = {
        module: Factors(a, torch.empty_like(b).uniform_(-size, size, generator=dice))
        for module, (a, b) in fresh.tensors.items()
    }
    return replace(fresh, tensors=tensors)


def on_disk(directory: Path, adapter: Adapter) -> str:
    """Written in PEFT's format; its path for the parameter `adapter`."""
    return str(write_adapter(adapter, directory / adapter.name))
