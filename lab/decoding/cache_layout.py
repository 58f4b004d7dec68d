"""The one module that knows how transformers lays out its key/value caches (5.24).

Names that changed: `forward` takes `cache=` (`past_key_values=` is deprecated and gone in 5.40) and gives the
cache back under the same name. A cache is a list `cache.layers`; attention layers have `.keys` and `.values`
of shape (batch, kv_head, position, head_dim). A sliding layer keeps window - 1 positions once it is full.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

from lab.decoding.room import RoomyLayer
from lab.errors import ModelError


@dataclass(frozen=True)
class LayerTensors:
    """What one layer of a cache holds.

    Attributes:
        keys: (batch, kv_head, position, head_dim), or None while the layer is empty or keeps none.
        values: likewise; head_dim may differ from that of the keys.
        positions: how many positions the two hold.
        kind: "full", "sliding" or "other", as in `LayerFacts`.
        window: positions a sliding layer sees, itself included; else None.
        bytes: of keys, values and whatever else the layer keeps for each position.
        reserved_bytes: of the memory behind them, room for later tokens included.
    """

    keys: Tensor | None
    values: Tensor | None
    positions: int
    kind: str
    window: int | None
    bytes: int
    reserved_bytes: int


def new_cache(model: nn.Module, capacity: int) -> DynamicCache:
    """An empty cache for `model`, with room for `capacity` positions in its full-attention layers.

    Args:
        model: a causal language model of transformers.

    Raises:
        ModelError: the model's memory is not made of attention keys and values; its class is named.
    """
    name = type(model).__name__
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "get_text_config"):
        raise ModelError(f"{name} is not a model of transformers.", remedy="Use a causal language model.")
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{name} has an encoder and a decoder.", remedy="Use a decoder-only causal language model.")
    refusal = ModelError(
        f"{name} has no attention key/value cache: it remembers the text in a state of fixed size.",
        remedy="Use a model with attention in all its layers, such as a Llama, Qwen, Gemma, Mistral or GPT-2.",
    )
    supported = getattr(model, "_supports_default_dynamic_cache", None)
    if getattr(model, "_is_stateful", False) or (supported is not None and not supported()):
        raise refusal
    try:
        cache = DynamicCache(config=config)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ModelError(
            f"The cache layout of {name} is unknown ({type(error).__name__}: {error}).",
            remedy="Use a model with attention key/value caches.",
        ) from error
    layers = cache.layers
    if any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers):
        raise refusal
    if all(isinstance(layer, DummyLayer) for layer in layers):
        raise refusal
    for index, layer in enumerate(layers):
        if type(layer) is DynamicLayer:
            layers[index] = RoomyLayer(capacity)
    return cache


def roomy_layers(cache: Cache) -> list[RoomyLayer]:
    """The layers of `cache` with room of their own: all of them where attention is full in every layer."""
    return [layer for layer in cache.layers if isinstance(layer, RoomyLayer)]


def layer_tensors(cache: Cache) -> list[LayerTensors]:
    """What each layer of `cache` holds now. The tensors are the cache's own, not copies."""
    return [_layer(layer) for layer in cache.layers]


def _layer(layer: Any) -> LayerTensors:
    held = held_bytes(layer)
    if held is not None:
        return LayerTensors(None, None, stored_positions(layer), "full", None, held, held)
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    extra = getattr(layer, "indexer_keys", None)
    tensors = [t for t in (keys, values, extra) if isinstance(t, Tensor)]
    behind = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _buffers(layer, tensors)}
    return LayerTensors(
        keys=keys,
        values=values,
        positions=stored_positions(layer),
        kind=_kind(layer),
        window=int(layer.sliding_window) if isinstance(layer, DynamicSlidingWindowLayer) else None,
        bytes=sum(t.numel() * t.element_size() for t in tensors),
        reserved_bytes=sum(behind.values()),
    )


def held_bytes(layer: Any) -> int | None:
    """Bytes of a layer that holds its positions as codes and counts them itself (`held_bytes`); None for any other."""
    held = getattr(layer, "held_bytes", None)
    return held if isinstance(held, int) else None


def _buffers(layer: Any, tensors: list[Tensor]) -> Iterable[Tensor]:
    # An empty view has no address of its own, so a roomy layer is asked for its buffers.
    if isinstance(layer, RoomyLayer):
        return [buffer for buffer in (layer.key_buffer, layer.value_buffer) if buffer is not None]
    return tensors


def _kind(layer: Any) -> str:
    if type(layer) in (RoomyLayer, DynamicLayer):
        return "full"
    return "sliding" if type(layer) is DynamicSlidingWindowLayer else "other"


def stored_positions(layer: Any) -> int:
    """How many positions the tensors of one cache layer hold; 0 while it is empty."""
    if isinstance(layer, RoomyLayer):
        return layer.length
    if held_bytes(layer) is not None:
        return int(layer.get_seq_length())
    keys = getattr(layer, "keys", None)
    return int(keys.shape[2]) if isinstance(keys, Tensor) and keys.dim() == 4 else 0


def stored_lengths(cache: Cache) -> tuple[int, ...]:
    """For each layer, how many positions its tensors hold."""
    return tuple(stored_positions(layer) for layer in cache.layers)


def total_bytes(cache: Cache) -> tuple[int, int]:
    """Bytes that hold positions and bytes reserved, over all layers."""
    layers = layer_tensors(cache)
    return sum(layer.bytes for layer in layers), sum(layer.reserved_bytes for layer in layers)


def empty_layer(cache: Cache, index: int) -> None:
    """Throw away what layer `index` holds, as a broken cache would. The other layers keep theirs."""
    layer = cache.layers[index]
    if isinstance(layer, RoomyLayer):
        layer.length = 0
    elif isinstance(layer, CacheLayerMixin) and isinstance(layer.keys, Tensor) and isinstance(layer.values, Tensor):
        layer.keys, layer.values = layer.keys[:, :, :0], layer.values[:, :, :0]


def layer_to_empty(cache: Cache) -> int:
    """The layer nearest to the middle whose loss leaves the masks of the others as they are.

    transformers sizes the mask of each kind by the first layer of that kind, so that one is left alone
    unless it is the only one.
    """
    kinds = [_kind(layer) for layer in cache.layers]
    free = [i for i, kind in enumerate(kinds) if kinds.index(kind) != i or kinds.count(kind) == 1]
    return min(free, key=lambda i: (abs(i - len(kinds) // 2), i))


@dataclass(frozen=True)
class Mark:
    """What a cache held at one moment, to come back to.

    Attributes:
        lengths: for each layer, the positions held.
        tensors: for each layer that replaces its tensors (sliding ones do), those of that moment; else None.
        seen: for each layer, the positions that had gone through it.
    """

    lengths: tuple[int, ...]
    tensors: tuple[tuple[Tensor, Tensor] | None, ...]
    seen: tuple[int, ...]


def mark(cache: Cache) -> Mark:
    """Remember what `cache` holds now. No tensor is copied."""
    held: list[tuple[Tensor, Tensor] | None] = []
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if isinstance(layer, RoomyLayer) or not isinstance(keys, Tensor) or not isinstance(values, Tensor):
            held.append(None)
        else:
            held.append((keys, values))
    seen = tuple(int(getattr(layer, "cumulative_length", stored_positions(layer))) for layer in cache.layers)
    return Mark(stored_lengths(cache), tuple(held), seen)


def keep(cache: Cache, since: Mark, rows: Sequence[int]) -> None:
    """Of the positions appended since `since`, keep these rows, in this order; forget the others.

    Args:
        rows: ascending indexes into what was appended: `range(n)` crops to the first n, a path picks a branch.
    """
    for index, layer in enumerate(cache.layers):
        before = since.lengths[index]
        if isinstance(layer, RoomyLayer):
            if list(rows) != list(range(len(rows))):
                for buffer in (layer.key_buffer, layer.value_buffer):
                    if buffer is not None and layer.length > before:
                        picked = torch.tensor(rows, device=buffer.device) + before
                        buffer[:, :, before : before + len(rows)] = buffer.index_select(2, picked)
            layer.length = min(layer.length, before + len(rows))
            continue
        _keep_replaced(layer, since, index, rows)


def shorten(cache: Cache, positions: int) -> None:
    """Forget all beyond the first `positions`.

    Raises:
        ModelError: a layer with a window, which no longer holds what came before.
    """
    for layer in cache.layers:
        if isinstance(layer, RoomyLayer):
            layer.length = min(layer.length, positions)
        elif stored_positions(layer):
            raise ModelError(
                "A sliding window cannot go back to an earlier text.", remedy="Use a model with full attention."
            )


def _keep_replaced(layer: Any, since: Mark, index: int, rows: Sequence[int]) -> None:
    """For a layer that gets new tensors at each update, a full sliding window among them."""
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if not isinstance(keys, Tensor) or not isinstance(values, Tensor):
        return
    window = int(layer.sliding_window) - 1 if isinstance(layer, DynamicSlidingWindowLayer) else None
    old = since.tensors[index]
    seen = int(getattr(layer, "cumulative_length", keys.shape[2]))
    added = seen - since.seen[index]
    if added > keys.shape[2]:
        raise ModelError(
            f"{added} tokens went through a sliding window of {window} at once, so none of them can be taken back.",
            remedy="Propose fewer tokens at a time.",
        )
    picked = torch.tensor([keys.shape[2] - added + row for row in rows], dtype=torch.long, device=keys.device)
    fresh = [tensor.index_select(2, picked) for tensor in (keys, values)]
    if old is not None:
        fresh = [torch.cat((before, new), dim=2) for before, new in zip(old, fresh, strict=True)]
    if window is not None:
        fresh = [tensor[:, :, -window:] for tensor in fresh]
        layer.cumulative_length = since.seen[index] + len(rows)
    layer.keys, layer.values = fresh


def reorder(cache: Cache, rows: Sequence[int]) -> None:
    """Let row i of the batch hold what row `rows[i]` held; the batch becomes as long as `rows`.

    Every layer kind knows how to move its own rows. New tensors are made, nothing is written into the old ones.
    """
    devices: dict[Any, Tensor] = {}
    layers: list[Any] = cache.layers
    for layer in layers:
        held = getattr(layer, "keys", None)
        device = held.device if isinstance(held, Tensor) else torch.device("cpu")
        if device not in devices:
            devices[device] = torch.tensor(list(rows), dtype=torch.long, device=device)
        layer.reorder_cache(devices[device])


def snapshot(cache: Cache) -> list[Any]:
    """The layers as they are now, to be put back with `put_back`. No tensor is copied, so until then only
    `reorder` may follow at once: it makes new tensors, while an appended token may be written into these."""
    return [copy.copy(layer) for layer in cache.layers]


def put_back(cache: Cache, layers: Sequence[Any]) -> None:
    """Let `cache` hold what it held at the `snapshot`."""
    cache.layers = [copy.copy(layer) for layer in layers]


def cache_keyword(model: nn.Module) -> str:
    """The keyword under which `model.forward` takes its cache.

    Raises:
        ModelError: it takes none.
    """
    names = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values"):
        if name in names:
            return name
    raise ModelError(
        f"{type(model).__name__} takes no key/value cache.", remedy="Use a causal language model with attention."
    )


def forward_takes(model: nn.Module, name: str) -> bool:
    """Whether `model.forward` names the argument `name`."""
    return name in inspect.signature(model.forward).parameters


def logits_of(output: Any) -> Tensor:
    """(batch, position, vocab) logits of a forward pass."""
    logits = output.logits if hasattr(output, "logits") else output[0]
    if not isinstance(logits, torch.Tensor):
        raise ModelError("The model's output has no logits.", remedy="Use a causal language model.")
    return logits


def fill_layer(cache: Cache, index: int, keys: Tensor, values: Tensor, seen: int) -> None:
    """Let layer `index` of an empty cache hold these tensors, as if `seen` positions had gone through it.

    Args:
        keys: (batch, kv_head, position, head_dim): what the layer would still hold of them.
        values: likewise.
    """
    layer: Any = cache.layers[index]
    if isinstance(layer, RoomyLayer):
        layer.capacity = max(layer.capacity, keys.shape[2] + 1)
        layer.device, layer.is_initialized = keys.device, True
        layer.keys, layer.values, layer.length = keys, values, keys.shape[2]
        return
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    if isinstance(layer, DynamicSlidingWindowLayer):
        layer.cumulative_length = seen
