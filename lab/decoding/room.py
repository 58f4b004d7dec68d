"""A cache layer of transformers with its memory allocated once."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicLayer


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A full-attention cache layer whose buffers are allocated once; `keys` and `values` are views of them.

    transformers' own layer copies all it holds at every token (`torch.cat`). This one writes the new
    positions into room kept for them and grows only when that is passed.

    Args:
        capacity: positions to make room for.

    Attributes:
        length: positions held.
        buffer: (2, batch, kv_head, capacity, head_dim), values first, where keys and values are of one
            shape; a token's values and keys are then written with one copy.
    """

    def __init__(self, capacity: int) -> None:
        self.length = 0
        self.key_buffer: Tensor | None = None
        self.value_buffer: Tensor | None = None
        self.buffer: Tensor | None = None
        self.capacity = max(capacity, 1)
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def keys(self) -> Tensor | None:
        """(batch, kv_head, length, head_dim), a view; None while nothing was ever stored."""
        return None if self.key_buffer is None else self.key_buffer.narrow(2, 0, self.length)

    @keys.setter
    def keys(self, value: Tensor | None) -> None:
        self.key_buffer = self._replacement(value)

    @property
    def values(self) -> Tensor | None:
        """(batch, kv_head, length, head_dim), a view; None while nothing was ever stored."""
        return None if self.value_buffer is None else self.value_buffer.narrow(2, 0, self.length)

    @values.setter
    def values(self, value: Tensor | None) -> None:
        self.value_buffer = self._replacement(value)

    def _replacement(self, value: Tensor | None) -> Tensor | None:
        # Reordering and its like hand in new tensors for the same positions.
        self.buffer = None
        if value is None:
            self.length = 0
            return None
        room = _room(value, self.capacity)
        room.narrow(2, 0, value.shape[2]).copy_(value)
        return room

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers for keys and values shaped like these: (batch, kv_head, any, head_dim)."""
        self.device = key_states.device
        if key_states.shape == value_states.shape:
            self.buffer = value_states.new_empty((2, *_room_shape(value_states, self.capacity)))
            self.value_buffer, self.key_buffer = self.buffer[0], self.buffer[1]
        else:
            self.key_buffer, self.value_buffer = _room(key_states, self.capacity), _room(value_states, self.capacity)
        self.length = 0
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append (batch, kv_head, new, head_dim) keys and values; gives all that is held."""
        del args, kwargs
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        held, new = self.length, key_states.shape[2]
        self.reserve(held + new)
        key_buffer, value_buffer = self.key_buffer, self.value_buffer
        assert key_buffer is not None and value_buffer is not None  # noqa: S101, PT018 - allocated above
        key_buffer.narrow(2, held, new).copy_(key_states)
        value_buffer.narrow(2, held, new).copy_(value_states)
        self.length = held + new
        return key_buffer.narrow(2, 0, self.length), value_buffer.narrow(2, 0, self.length)

    def reserve(self, positions: int) -> None:
        """Grow by half if there is no room for `positions`."""
        if positions <= self.capacity:
            return
        keys, values = self.keys, self.values
        self.capacity = positions + positions // 2
        self.keys, self.values = keys, values

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` positions (a negative number, as in transformers)."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes a negative number of tokens, got {tokens_to_remove}")
        self.length = max(self.length + tokens_to_remove, 0)

    def get_seq_length(self) -> int:
        """Positions held."""
        return self.length


def _room_shape(like: Tensor, positions: int) -> tuple[int, int, int, int]:
    return (like.shape[0], like.shape[1], positions, like.shape[3])


def _room(like: Tensor, positions: int) -> Tensor:
    return like.new_empty(_room_shape(like, positions))
