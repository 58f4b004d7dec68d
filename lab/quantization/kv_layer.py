"""A key/value cache whose older positions are codes, for the models and loops that take transformers' caches.

Each layer's codes are made once, when a whole group of positions has left the dense window; nothing is ever quantized
a second time. What attention reads is what the codes say, widened for the moment of the pass; memory holds the codes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from lab.decoding.cache_layout import new_cache
from lab.decoding.room import RoomyLayer
from lab.errors import ModelError
from lab.quantization.kv_quant import SplitKv, quantize_kv
from lab.quantization.kv_scheme import Along, KvBytes, KvScheme


class QuantizedKvLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer of a quantized cache.

    Args:
        scheme: how.
        keep_widened: keep what the codes say beside them. The same numbers, sooner (widening 2,048 positions takes some
            5 ms a layer), but no memory is saved; the bytes counted stay those of codes, scales and dense positions.

    Attributes:
        hold: while True nothing more is quantized: so a prompt that comes in pieces is read dense, as one that comes
            whole.
    """

    def __init__(self, scheme: KvScheme, *, keep_widened: bool = False) -> None:
        self.scheme, self.hold, self.keep_widened = scheme, False, keep_widened
        self._keys: SplitKv | None = None
        self._values: SplitKv | None = None
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def keys(self) -> Tensor | None:
        """(batch, kv_head, position, head_dim) as they count, widened anew at each look; None while empty."""
        return None if self._keys is None else self._keys.dequantize()

    @keys.setter
    def keys(self, value: Tensor | None) -> None:
        self._only_none(value)
        self._keys = None

    @property
    def values(self) -> Tensor | None:
        """Like `keys`."""
        return None if self._values is None else self._values.dequantize()

    @values.setter
    def values(self, value: Tensor | None) -> None:
        self._only_none(value)
        self._values = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Be ready for keys and values shaped like these: (batch, kv_head, any, head_dim)."""
        self.device, self.dtype = key_states.device, key_states.dtype
        self._keys = self._nothing(key_states, self.scheme.keys)
        self._values = self._nothing(value_states, self.scheme.values)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append (batch, kv_head, new, head_dim) keys and values.

        Gives all that is held, as this pass reads it: the new positions dense. What has left the window then becomes
        codes, for the next pass.
        """
        del args, kwargs
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self._held()
        self._keys, self._values = keys.appended(key_states), values.appended(value_states)
        read = self._keys.dequantize(), self._values.dequantize()
        if not self.hold:
            self.settle()
        return read

    def settle(self) -> None:
        """Quantize the whole groups of positions that have left the window."""
        if not self.is_initialized:
            return
        keys, values = self._held()
        done = keys.codes.positions
        more = self.scheme.quantized_positions(self.get_seq_length(), done) - done
        if more:
            self._keys, self._values = keys.settled(more, self.scheme), values.settled(more, self.scheme)

    @property
    def stored_bytes(self) -> KvBytes:
        """Counted from the tensors held."""
        if not self.is_initialized:
            return KvBytes()
        keys, values = self._held()
        return keys.bytes + values.bytes

    @property
    def held_bytes(self) -> int:
        """All of them, for the ledger of caches."""
        return self.stored_bytes.total

    @property
    def quantized_positions(self) -> int:
        """Positions held as codes."""
        return 0 if self._keys is None else self._keys.codes.positions

    def get_seq_length(self) -> int:
        """Positions held."""
        return 0 if self._keys is None else self._keys.codes.positions + self._keys.dense.shape[-2]

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` positions (a negative number, as in transformers).

        Raises:
            ModelError: some of them are codes already.
        """
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes a negative number of tokens, got {tokens_to_remove}")
        if tokens_to_remove == 0 or not self.is_initialized:
            return
        keys, values = self._held()
        left = keys.dense.shape[-2] + tokens_to_remove
        if left < 0:
            raise ModelError(
                f"{-tokens_to_remove} positions cannot be taken back: but {keys.dense.shape[-2]} all are codes.",
                remedy="Keep a longer dense window.",
            )
        self._keys = replace(keys, dense=keys.dense[..., :left, :])
        self._values = replace(values, dense=values.dense[..., :left, :])

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i of the batch hold what row `beam_idx[i]` held: codes, scales and the dense positions."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        if self.is_initialized:
            self._keys, self._values = (part.picked(indices) for part in self._held())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row of the batch."""
        if self.is_initialized:
            rows = torch.arange(self._held()[0].dense.shape[0]).repeat_interleave(repeats)
            self.batch_select_indices(rows)

    def reset(self) -> None:
        """Forget all."""
        self._keys = self._values = None
        self.is_initialized = False

    def _held(self) -> tuple[SplitKv, SplitKv]:
        assert self._keys is not None and self._values is not None  # noqa: S101, PT018 - set once initialized
        return self._keys, self._values

    def _nothing(self, like: Tensor, along: Along) -> SplitKv:
        none = like[:, :, :0]
        return SplitKv(quantize_kv(none, along, self.scheme), none, none if self.keep_widened else None)

    @staticmethod
    def _only_none(value: Tensor | None) -> None:
        if value is not None:
            raise ModelError("The tensors of a quantized cache cannot be replaced.", remedy="Use a dense cache.")


def quantized_cache(model: nn.Module, scheme: KvScheme, *, keep_widened: bool = False) -> Cache:
    """An empty cache for `model` whose full-attention layers are quantized; layers with a window stay dense.

    Args:
        keep_widened: see `QuantizedKvLayer`.

    Raises:
        ModelError: no attention key/value cache, or no layer that reads the whole text.
    """
    cache = new_cache(model, 1)
    found = 0
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, RoomyLayer):
            cache.layers[index] = QuantizedKvLayer(scheme, keep_widened=keep_widened)
            found += 1
    if not found:
        raise ModelError(
            f"No layer of {type(model).__name__} keeps the keys and values of the whole text.",
            remedy="Use a model with full attention.",
        )
    return cache


def quantized_layers(cache: Cache) -> list[QuantizedKvLayer]:
    """The quantized layers of `cache`."""
    return [layer for layer in cache.layers if isinstance(layer, QuantizedKvLayer)]


def cache_bytes(cache: Cache) -> KvBytes:
    """Of all quantized layers together, counted from their tensors."""
    return _sum(layer.stored_bytes for layer in quantized_layers(cache))


def settling(cache: Cache) -> Generator[None, None, None]:
    """End the hold: quantize layer after layer what has left the window; pauses after each."""
    for layer in quantized_layers(cache):
        layer.hold = False
        with torch.inference_mode():
            layer.settle()
        yield


def _sum(parts: Iterable[KvBytes]) -> KvBytes:
    total = KvBytes()
    for part in parts:
        total = total + part
    return total
