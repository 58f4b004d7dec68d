"""Make peft.json and from_peft/: what peft computes and writes for weights that any machine can make again.

Run as `python tests/lora/golden/make_peft.py` with the extra `oracles` installed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from lora_made import exact  # noqa: E402

FILE = HERE / "peft.json"
WRITTEN = HERE / "from_peft"
IN, OUT = 6, 10
CASES = (("Linear", 2, 4, False), ("Conv1D", 2, 4, False), ("Linear", 4, 6, True), ("Conv1D", 3, 5, True))
"""(kind of module, rank, alpha, rslora)."""
RANKS = {"first": 3, "second": 2}
ALPHAS = {"first": 12, "second": 8}


def layer(kind: str) -> nn.Module:
    """A module of exact weights, (out, in) = (10, 6) of its matrix."""
    made: Any = nn.Linear(IN, OUT) if kind == "Linear" else Conv1D(OUT, IN)
    made.weight.data = exact(OUT, IN, 1) if kind == "Linear" else exact(OUT, IN, 1).t().contiguous()
    made.bias.data = exact(1, OUT, 2)[0]
    return nn.ModuleDict({"layer": made})


def adapted(kind: str, rank: int, alpha: int, rslora: bool) -> dict[str, Any]:
    from peft import LoraConfig
    from peft.tuners.lora import LoraModel

    config = LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=["layer"], use_rslora=rslora, fan_in_fan_out=kind == "Conv1D"
    )
    model = LoraModel(layer(kind), config, "default").eval()
    wrapped: Any = model.model["layer"]
    wrapped.lora_A["default"].weight.data = exact(rank, IN, 3)
    wrapped.lora_B["default"].weight.data = exact(OUT, rank, 4)
    x = exact(2, IN, 5)
    with torch.no_grad():
        unmerged = wrapped(x)
        wrapped.merge()
        merged, weight = wrapped(x), wrapped.base_layer.weight
    return {
        "kind": kind,
        "rank": rank,
        "alpha": alpha,
        "rslora": rslora,
        "unmerged": hexed(unmerged),
        "merged": hexed(merged),
        "weight": hexed(weight),
    }


def hexed(values: torch.Tensor) -> list[list[str]]:
    return [[number.hex() for number in row] for row in values.tolist()]


class Two(nn.Module):
    """Two linear modules with names of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(IN, OUT, bias=False), nn.Linear(OUT, IN, bias=False)


def write() -> None:
    """A directory as peft writes it, with ranks and alphas of their own."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=2,
        lora_alpha=8,
        target_modules=["first", "second"],
        rank_pattern={"first": 3},
        alpha_pattern={"first": 12},
    )
    model = get_peft_model(Two(), config)
    for index, name in enumerate(RANKS):
        wrapped: Any = getattr(model.base_model.model, name)
        a, b = wrapped.lora_A["default"].weight, wrapped.lora_B["default"].weight
        a.data, b.data = exact(*a.shape, 10 + index), exact(*b.shape, 20 + index)
    shutil.rmtree(WRITTEN, ignore_errors=True)
    model.save_pretrained(str(WRITTEN))
    (WRITTEN / "README.md").unlink(missing_ok=True)
    (WRITTEN / "adapter_model.safetensors").chmod(0o644)


if __name__ == "__main__":
    import peft

    body = {"made_with": f"peft {peft.__version__}, by make_peft.py beside this file", "cases": []}
    body["cases"] = [adapted(*case) for case in CASES]
    FILE.write_text(json.dumps(body, indent=1) + "\n", encoding="ascii")
    write()
