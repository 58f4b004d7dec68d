"""The weight matrices of a model that an experiment can change, by layer and projection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lab.errors import BadInput
from lab.models.linear import decoder_layers, is_linear, out_in, set_weight
from lab.models.loading import LoadedModel


@dataclass(frozen=True)
class Target:
    """One matrix of the shared model, read-only.

    Attributes:
        layer: 0 is the first.
        projection: its name in the layer, as short as it is clear: "q_proj", "attn.c_proj".
        name: the module's full name.
        module: of the shared model.
    """

    layer: int
    projection: str
    name: str
    module: nn.Module

    @property
    def weight(self) -> Tensor:
        """(out, in), also of a Conv1D, which keeps it the other way round."""
        return out_in(self.module)

    @property
    def title(self) -> str:
        """For a sentence."""
        return f"layer {self.layer} {self.projection}"


def find_targets(model: nn.Module) -> list[Target]:
    """All linear matrices inside the decoder layers, in the model's order.

    Raises:
        ModelError: the model has no list of decoder layers.
    """
    prefix, layers = decoder_layers(model)
    found: list[Target] = []
    for index, layer in enumerate(layers):
        names = [name for name, module in layer.named_modules() if is_linear(module)]
        last = Counter(name.rpartition(".")[2] for name in names)
        for name in names:
            own = name.rpartition(".")[2]
            short = own if last[own] == 1 else ".".join(name.split(".")[-2:])
            found.append(Target(index, short, f"{prefix}.{index}.{name}", layer.get_submodule(name)))
    return found


def pick(loaded: LoadedModel, targets: list[Target], layer: int, projection: str) -> Target:
    """One matrix.

    Raises:
        BadInput: the model has none of that name; those it has are named.
    """
    layers = 1 + max((t.layer for t in targets), default=-1)
    if layer >= layers:
        raise BadInput(
            f"Layer {layer} does not exist: {loaded.facts.name} has {layers} layers.",
            remedy=f"Name layers from 0 to {layers - 1}.",
        )
    here = [t for t in targets if t.layer == layer]
    for target in here:
        if target.projection == projection:
            return target
    raise BadInput(
        f"Layer {layer} of {loaded.facts.name} has no matrix {projection!r}.",
        remedy=f"It has {', '.join(t.projection for t in here) or 'none'}.",
    )


def put(shell: nn.Module, target: Target, weight: Tensor) -> None:
    """Give the shell's own module a weight, (out, in); the shared model's stays as it is."""
    set_weight(shell.get_submodule(target.name), weight)


def relative(change: Tensor, base: Tensor) -> float:
    """|change| / |base|, Frobenius norms in float64; 0 for 0 of 0, infinite for something of 0."""
    norms = [float(torch.linalg.vector_norm(t, dtype=torch.float64)) for t in (change, base)]
    return 0.0 if norms[0] == 0 else norms[0] / norms[1] if norms[1] else float("inf")
