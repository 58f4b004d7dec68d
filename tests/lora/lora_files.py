"""An adapter's directory for tests, and changes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lora_made import trained
from safetensors.torch import load_file, save_file

from lab.lora.peft_config import CONFIG
from lab.lora.peft_files import WEIGHTS, write_adapter
from lab.models.loading import LoadedModel

Tiny = Callable[..., LoadedModel]
Q = "model.layers.0.self_attn.q_proj"


def written(tiny: Tiny, out: Path) -> Path:
    return write_adapter(trained(tiny().model, ("q_proj",)), out)


def settings(directory: Path, **values: Any) -> Path:
    """Change the config's settings."""
    body = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    (directory / CONFIG).write_text(json.dumps({**body, **values}), encoding="utf-8")
    return directory


def tensors(directory: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """Change the file's tensors."""
    held = load_file(directory / WEIGHTS)
    change(held)
    save_file(held, str(directory / WEIGHTS))
    return directory
