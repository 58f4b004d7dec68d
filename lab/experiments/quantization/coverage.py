"""How much of a model is quantized, what is not and why, and what all of it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from lab.events.quantization import Coverage, CoverageRow, Setting, Truth
from lab.experiments.quantization.setup import Setup
from lab.models.linear import is_linear
from lab.quantization.quantized import Storage


@dataclass
class _Row:
    modules: int = 0
    parameters: int = 0
    bytes: float = 0.0


@dataclass
class _Sums:
    rows: dict[tuple[str, bool, str], _Row] = field(default_factory=dict)

    def add(self, name: str, parameters: int, size: float, reason: str = "", *, quantized: bool = False) -> None:
        row = self.rows.setdefault((name, quantized, reason), _Row())
        row.modules += 1
        row.parameters += parameters
        row.bytes += size


def covered(
    setup: Setup,
    setting: Setting,
    storage: Mapping[str, Storage],
    *,
    truth: Truth = "simulated",
    reasons: Mapping[str, str] | None = None,
) -> Coverage:
    """Count the parameters of the model.

    Args:
        storage: bits of each quantized module, by its name.
        reasons: why a linear module was left dense, by its name; others were not asked for.
    """
    reasons = reasons or {}
    by_name = {target.name: target for target in setup.targets}
    sums, seen = _Sums(), set[int]()
    layers = len(setup.loaded.facts.layers) or 1 + max((t.layer for t in setup.targets), default=0)
    # A tied head that is packed is a matrix of its own: the embedding it shared stays.
    head = next((n for n in storage if n not in by_name and not _counted(setup, n)), None)
    bits, sizes, counts = [0.0] * layers, [0] * layers, [0] * layers
    for name, module in setup.model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            own = storage.get(name) if key == "weight" else None
            dense = parameter.numel() * parameter.element_size()
            if own is None:
                kind, why = _kind(setup, name, module, key), _why(setup, name, module, reasons)
                if head is not None and key == "weight" and not _counted(setup, name):
                    kind, why = "embedding", "looked up; the head is packed by itself"
                sums.add(kind, parameter.numel(), dense, why)
                continue
            target = by_name.get(name)
            sums.add(target.projection if target else "head", parameter.numel(), own.bits / 8, quantized=True)
            if target is not None:
                bits[target.layer] += own.code_bits
                counts[target.layer] += own.weights
                sizes[target.layer] += own.bytes
    if head is not None:
        sums.add("head", 0, storage[head].bits / 8, quantized=True)
    rows = tuple(
        CoverageRow(name, row.modules, row.parameters, quantized, reason, round(row.bytes))
        for (name, quantized, reason), row in sorted(sums.rows.items(), key=lambda item: (not item[0][1],))
    )
    quantized = sum(row.parameters for row in rows if row.quantized)
    total = sum(row.parameters for row in rows)
    code_total = sum(s.bits for s in storage.values())
    model_bytes = sum(row.bytes for row in rows)
    return Coverage(
        setting=setting,
        truth=truth,
        quantized_parameters=quantized,
        parameters=total,
        rows=rows,
        bits_per_weight=code_total / max(1, sum(s.weights for s in storage.values())),
        model_bits=8 * model_bytes / max(1, total),
        model_bytes=model_bytes,
        dense_bytes=total * torch.tensor([], dtype=setup.loaded.dtype).element_size(),
        layer_bits=tuple(b / c if c else 0.0 for b, c in zip(bits, counts, strict=True)),
        layer_bytes=tuple(sizes),
    )


def _counted(setup: Setup, name: str) -> bool:
    """Whether a module's weight is met first under this name: a tied one is met at the embedding."""
    weight = getattr(setup.model.get_submodule(name), "weight", None)
    get_in = getattr(setup.model, "get_input_embeddings", lambda: None)
    embedding = get_in()
    return not (embedding is not None and weight is embedding.weight)


def _kind(setup: Setup, name: str, module: nn.Module, key: str) -> str:
    if isinstance(module, nn.Embedding):
        return "embedding and head" if setup.loaded.facts.tied else "embedding"
    if key == "bias":
        return "biases"
    if "norm" in type(module).__name__.lower() or "ln_" in name:
        return "norms"
    target = next((t for t in setup.targets if t.name == name), None)
    return target.projection if target else "head" if is_linear(module) else "others"


def _why(setup: Setup, name: str, module: nn.Module, reasons: Mapping[str, str]) -> str:
    if name in reasons:
        return reasons[name]
    if isinstance(module, nn.Embedding):
        if setup.loaded.facts.tied:
            return "one tensor looks tokens up and gives the logits: its errors would enter twice"
        return "it is looked up, not multiplied"
    if is_linear(module):
        head = next((t for t in setup.targets if t.name == name), None) is None
        return "the head's errors go straight into the logits" if head else "it was left dense in this run"
    return "too few to matter, and sensitive"
