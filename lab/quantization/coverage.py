"""What of a model was really quantized, what was not and why, and what all of it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from lab.models.linear import is_linear
from lab.quantization.quantized import Storage


@dataclass(frozen=True)
class Skipped:
    """Parameters that stayed dense.

    Attributes:
        name: of the parameter.
        parameters: in it.
        reason: in a few words.
    """

    name: str
    parameters: int
    reason: str


@dataclass(frozen=True)
class Coverage:
    """Every parameter of a quantized model, once.

    Attributes:
        parameters: of the quantized model; a head that was untied counts beside the embedding.
        quantized: of them quantized.
        untied: whether a head was untied for it.
        skipped: those that stayed dense, with reasons.
        dense_bytes: of the model it was made from, in its dtype, tied tensors once.
        bytes: of the quantized model: codes with all overhead, and what stayed dense in its dtype.
    """

    parameters: int
    quantized: int
    untied: bool
    skipped: tuple[Skipped, ...]
    dense_bytes: int
    bytes: int

    @property
    def share(self) -> float:
        """Of the parameters, quantized: 0 to 1."""
        return self.quantized / self.parameters

    @property
    def bits_per_parameter(self) -> float:
        """Of the whole model, dense parts in it."""
        return 8 * self.bytes / self.parameters


def linear_names(model: nn.Module, *, head: bool) -> tuple[str, ...]:
    """The linear modules and Conv1Ds of a model; the output head only if asked for."""
    output = getattr(model, "get_output_embeddings", lambda: None)()
    return tuple(name for name, module in model.named_modules() if is_linear(module) and (head or module is not output))


def coverage_of(model: nn.Module, shell: nn.Module, storages: Mapping[str, Storage]) -> Coverage:
    """Count a shell in which the modules `storages` are quantized, and the model it was made from."""
    modules = dict(shell.named_modules())
    quantized = {id(modules[name].weight): name for name in storages}
    output: Any = getattr(shell, "get_output_embeddings", lambda: None)()
    before: Any = getattr(model, "get_output_embeddings", lambda: None)()
    embedding: Any = getattr(model, "get_input_embeddings", lambda: None)()
    tied = before is not None and embedding is not None and before.weight is embedding.weight
    untied = tied and id(output.weight) in quantized
    skipped, total, size = [], 0, sum(storage.bytes for storage in storages.values())
    for name, parameter in shell.named_parameters():
        total += parameter.numel()
        if id(parameter) in quantized:
            continue
        size += parameter.numel() * parameter.element_size()
        owner = modules[name.rpartition(".")[0]]
        head = output is not None and parameter is getattr(output, "weight", None)
        skipped.append(Skipped(name, parameter.numel(), _reason(owner, name, parameter.dim(), head=head, tied=tied)))
    return Coverage(
        parameters=total,
        quantized=sum(storage.weights for storage in storages.values()),
        untied=untied,
        skipped=tuple(skipped),
        dense_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        bytes=size,
    )


def _reason(owner: nn.Module, name: str, dims: int, *, head: bool, tied: bool) -> str:
    if isinstance(owner, nn.Embedding):
        return (
            "an embedding, tied to the head: rows are looked up"
            if tied and head
            else "an embedding: rows are looked up"
        )
    if head:
        return "the output head was not asked for"
    if is_linear(owner) and dims == 2:
        return "not chosen"
    if dims == 1:
        return "a bias" if name.endswith("bias") else "a norm or another vector"
    return f"a tensor of {dims} dimensions in {type(owner).__name__}, no linear module"
