"""Where a model's MLP channels and attention heads lie, and which models can lose some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from lab.errors import ModelError
from lab.models.linear import decoder_layers, is_linear, out_in

GATED = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
PLAIN = ("mlp.c_fc", "mlp.c_proj")
ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_REMEDY = "Prune single weights of it instead (magnitude, Wanda, SparseGPT)."


@dataclass(frozen=True)
class LayerParts:
    """The modules of one decoder layer, by name.

    Attributes:
        up: those whose rows are channels: gate and up, or the one before the activation.
        down: the one whose columns read them.
        channels: MLP channels.
        q, k, v, o: the attention's projections; "" where heads cannot be removed.
        heads, kv_heads, head_dim: of the attention; 0 where heads cannot be removed.
    """

    up: tuple[str, ...]
    down: str
    channels: int
    q: str = ""
    k: str = ""
    v: str = ""
    o: str = ""
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0


def layer_parts(model: nn.Module, *, heads: bool) -> tuple[LayerParts, ...]:
    """The parts of each decoder layer, all alike.

    Args:
        heads: whether heads are to be removed, so that a model where they cannot be is refused.

    Raises:
        ModelError: another kind of MLP or attention, experts, layers that differ; what it is is in the message.
    """
    prefix, layers = decoder_layers(model)
    config: Any = getattr(model, "config", None)
    found = []
    for index, layer in enumerate(layers):
        modules = {name: module for name, module in layer.named_modules() if is_linear(module)}
        at = f"{prefix}.{index}."
        names = next((kind for kind in (GATED, PLAIN) if all(name in modules for name in kind)), None)
        if names is None:
            raise ModelError(
                f"{type(layer).__name__} has no plain MLP whose channels could be removed (experts, or other names).",
                remedy=_REMEDY,
            )
        channels = out_in(modules[names[-1]]).shape[1]
        up = tuple(at + name for name in names[:-1])
        if any(out_in(modules[name]).shape[0] != channels for name in names[:-1]):
            raise ModelError(f"The MLP of {type(layer).__name__} has halves of two widths.", remedy=_REMEDY)
        part = LayerParts(up, at + names[-1], channels)
        if all(name in modules for name in ATTENTION):
            attention: Any = layer.get_submodule("self_attn")
            q, k, v, o = (at + name for name in ATTENTION)
            size = int(attention.head_dim)
            count, kv = (out_in(modules[name]).shape[0] // size for name in ATTENTION[:2])
            shapes = [tuple(out_in(modules[name]).shape) for name in ATTENTION]
            if shapes[3][1] == count * size == shapes[0][0] and shapes[2][0] == kv * size and count % kv == 0:
                part = LayerParts(up, at + names[-1], channels, q, k, v, o, count, kv, size)
        if heads and not part.heads:
            raise ModelError(
                f"The heads of {type(layer).__name__} cannot be removed: its query, key and value projections are one, "
                "or its heads must add up to the hidden width.",
                remedy="Remove MLP channels instead.",
            )
        found.append(part)
    alike = {(part.channels, part.heads, part.kv_heads, part.head_dim) for part in found}
    if len(alike) != 1 or not isinstance(getattr(config, "intermediate_size", channels), int):
        raise ModelError(
            f"The layers of {type(model).__name__} have different widths, which one config could not say when smaller.",
            remedy=_REMEDY,
        )
    return tuple(found)
