"""What of a model was left as it is when some of its matrices were quantized or pruned, and why."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from torch import nn

from lab.models.linear import is_linear, output_head


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
class Untouched:
    """All that was not taken.

    Attributes:
        parameters: of the whole shell, taken or not; a head that was untied counts beside the embedding.
        untied: whether a head was untied to be taken.
        skipped: what stayed dense, with reasons.
        bytes: of it, in its dtype.
    """

    parameters: int
    untied: bool
    skipped: tuple[Skipped, ...]
    bytes: int


def untouched(model: nn.Module, shell: nn.Module, taken: Collection[str]) -> Untouched:
    """Count a shell of `model` in which the weights of the modules `taken` are new."""
    modules = dict(shell.named_modules())
    new = {id(modules[name].weight) for name in taken}
    output, before = output_head(shell), output_head(model)
    embedding = getattr(model, "get_input_embeddings", lambda: None)()
    tied = before is not None and embedding is not None and before.weight is embedding.weight
    skipped, total, size = [], 0, 0
    for name, parameter in shell.named_parameters():
        total += parameter.numel()
        if id(parameter) in new:
            continue
        size += parameter.numel() * parameter.element_size()
        owner = modules[name.rpartition(".")[0]]
        head = output is not None and parameter is getattr(output, "weight", None)
        skipped.append(Skipped(name, parameter.numel(), _reason(owner, name, parameter.dim(), head=head, tied=tied)))
    untied = tied and output is not None and id(output.weight) in new
    return Untouched(total, untied, tuple(skipped), size)


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
