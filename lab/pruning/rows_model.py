"""The smaller dense model that is left when channels and heads are removed: the same class, a smaller config.

It runs wherever the model ran, by the same kernels, and can be saved. What is not made smaller is shared with the
model, which is not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lab.errors import ModelError
from lab.models.linear import decoder_layers
from lab.pruning.rows import Rows, head_rows
from lab.steps import finished


@dataclass(frozen=True)
class SmallerModel:
    """What was built.

    Attributes:
        model: in evaluation mode; unchanged tensors are those of the model it was made from.
        parameters_before, parameters: tied tensors once.
        bytes_before, bytes: of them, in their dtype.
        multiplied_before, multiplied: weights that one token is multiplied with inside the decoder layers.
    """

    model: nn.Module
    parameters_before: int
    parameters: int
    bytes_before: int
    bytes: int
    multiplied_before: int
    multiplied: int


def building_smaller(model: nn.Module, rows: Rows) -> Generator[float, None, SmallerModel]:
    """Build it. Yields the share done, after each layer.

    Raises:
        ModelError: a config that cannot say the smaller shape; the reason is in the message.
    """
    smaller = _empty(model, rows)
    yield 0.1
    slices = [_slices(rows, index) for index in range(len(rows.layers))]
    everything = {name: kept for layer in slices for name, kept in layer.items()}
    _, stack = decoder_layers(model)
    paths = dict(model.named_modules())
    inside = {id(module): index for index, layer in enumerate(stack) for module in layer.modules()}
    done = -1
    for name, module in smaller.named_modules():
        source = paths[name]
        index = inside.get(id(source), done)
        if index > done:
            done = index
            yield 0.1 + 0.9 * index / len(slices)
        with torch.no_grad():
            _fill(module, source, everything.get(name))
    tie: Any = getattr(smaller, "tie_weights", None)
    if tie is not None:
        tie()
    smaller.eval()
    left = [name for name, t in (*smaller.named_parameters(), *smaller.named_buffers()) if t.device.type == "meta"]
    if left:
        raise ModelError(
            f"{type(model).__name__} has weights of its own kind ({left[0]}).", remedy="Use another model."
        )
    return SmallerModel(smaller, *_sizes(model, smaller))


def build_smaller(model: nn.Module, rows: Rows) -> SmallerModel:
    """`building_smaller`, run to its end at once."""
    return finished(building_smaller(model, rows))


def _empty(model: nn.Module, rows: Rows) -> nn.Module:
    """The same class without weights, of the smaller shape."""
    config: Any = copy.deepcopy(getattr(model, "config", None))
    layer = rows.layers[0]
    channels, heads, _ = rows.removed
    wanted: dict[str, int] = {}
    if channels:
        wanted["n_inner" if hasattr(config, "n_inner") else "intermediate_size"] = len(layer.channels)
    if heads:
        wanted |= {
            "num_attention_heads": len(layer.heads),
            "num_key_value_heads": len(layer.kv_heads),
            "head_dim": layer.parts.head_dim,
        }
    for name, value in wanted.items():
        setattr(config, name, value)
    try:
        # What a saved directory would be read as: a class may refuse a shape, or know nothing of a setting.
        again: Any = type(config).from_dict(config.to_dict())
        with torch.device("meta"):
            smaller: nn.Module = type(model)(config)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{type(config).__name__} cannot say {_words(wanted)}: {said}", remedy="Remove another number."
        ) from error
    if any(getattr(again, name, None) != value for name, value in wanted.items()):
        raise ModelError(
            f"{type(config).__name__} would not keep {_words(wanted)} when saved.", remedy="Remove another number."
        )
    generation: Any = getattr(model, "generation_config", None)
    if generation is not None:
        smaller.generation_config = copy.deepcopy(generation)
    return smaller


def _words(wanted: dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in wanted.items())


def _slices(rows: Rows, index: int) -> dict[str, tuple[Tensor | None, Tensor | None]]:
    """By module: the rows (outputs) and columns (inputs) that stay; None for all."""
    layer = rows.layers[index]
    parts = layer.parts
    found: dict[str, tuple[Tensor | None, Tensor | None]] = {}
    if len(layer.channels) < parts.channels:
        found |= dict.fromkeys(parts.up, (layer.channels, None))
        found[parts.down] = (None, layer.channels)
    if len(layer.heads) < parts.heads:
        query, key = (head_rows(heads, parts.head_dim) for heads in (layer.heads, layer.kv_heads))
        found |= {parts.q: (query, None), parts.k: (key, None), parts.v: (key, None), parts.o: (None, query)}
    return found


def _fill(module: nn.Module, source: nn.Module, kept: tuple[Tensor | None, Tensor | None] | None) -> None:
    """Give a module without weights those of its source, or parts of them."""
    for name, parameter in source.named_parameters(recurse=False):
        values = parameter.detach()
        if kept is not None:
            turned = type(source).__name__ == "Conv1D" and values.dim() == 2
            wide = values.t() if turned else values
            if kept[0] is not None:
                wide = wide[kept[0].to(wide.device)]
            if kept[1] is not None and wide.dim() == 2:
                wide = wide[:, kept[1].to(wide.device)]
            values = (wide.t() if turned else wide).contiguous()
        setattr(module, name, nn.Parameter(values, requires_grad=parameter.requires_grad))
    own = dict(source.named_buffers(recurse=False))
    for name in dict(module.named_buffers(recurse=False)):
        setattr(module, name, own[name])
    for name, value in vars(source).items():
        # A plain attribute may hold a tensor too (a rotary embedding keeps its original frequencies so).
        if isinstance(value, Tensor):
            setattr(module, name, value)


def _sizes(model: nn.Module, smaller: nn.Module) -> tuple[int, int, int, int, int, int]:
    counts, sizes, multiplied = [], [], []
    for one in (model, smaller):
        counts.append(sum(p.numel() for p in one.parameters()))
        sizes.append(sum(p.numel() * p.element_size() for p in one.parameters()))
        multiplied.append(sum(p.numel() for p in decoder_layers(one)[1].parameters() if p.dim() == 2))
    return counts[0], counts[1], sizes[0], sizes[1], multiplied[0], multiplied[1]
