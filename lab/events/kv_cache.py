"""Events of the `kv_cache` experiment."""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.array import ArrayData
from lab.events.base import Event
from lab.events.decoding import Candidate


@dataclass(frozen=True, kw_only=True)
class TokenDecoded(Event):
    """One new token, with the cache.

    Attributes:
        index: 0 for the first new token.
        ms: its own pass through the model and its choice, milliseconds. The first one comes out of
            the prefill, so its `ms` is that of the choice and the prefill's chunks hold the rest.
        phase: "prefill" for the first token, "decode" for the others.
        top: the most probable tokens after temperature and before top-k and top-p, over the whole vocabulary.
        gap: difference of the two largest logits: how close the call was.
        computed: key/value computations of this step: tokens that went through the layers.
        is_end: whether it is one of the model's end tokens.
    """

    index: int
    token_id: int
    text: str
    log_prob: float
    ms: float
    phase: str
    top: tuple[Candidate, ...]
    gap: float
    computed: int
    is_end: bool


@dataclass(frozen=True, kw_only=True)
class CacheLedger(Event):
    """What the cache holds after a step, counted from its tensors.

    Attributes:
        index: the token this follows: -1 after a prefill chunk, else `TokenDecoded.index`.
        phase: "prefill" or "decode".
        cache_length: positions that have gone through the model.
        layer_bytes: for each layer, bytes of its key and value tensors that hold positions.
        layer_positions: for each layer, how many positions those tensors hold.
        formula_bytes: for each layer, 2 * kv_heads * head_dim * min(cache_length, stored window) * bytes, from the
            model's facts alone; 0 for a layer of a kind that has no formula ("other").
        reserved_bytes: bytes allocated for the cache, room for later tokens included.
    """

    index: int
    phase: str
    cache_length: int
    layer_bytes: tuple[int, ...]
    layer_positions: tuple[int, ...]
    formula_bytes: tuple[int, ...]
    reserved_bytes: int


@dataclass(frozen=True, kw_only=True)
class UncachedToken(Event):
    """The same token made once more with nothing remembered: all positions go through the model again.

    Attributes:
        computed: key/value computations of this step: the number of tokens so far.
        ms: the whole step, milliseconds.
    """

    index: int
    token_id: int
    ms: float
    computed: int


@dataclass(frozen=True, kw_only=True)
class AttentionRead(Event):
    """Which cached positions one token reads.

    Attributes:
        index: the new token that this pass produced.
        layers: the layers recorded.
        weights: float16, (layer, head, bin): attention weights of the newest position, max-pooled over
            positions into at most 128 bins of equal size.
        positions: how many positions the bins cover; the newest is the last.
        bin_size: positions in each bin (the last may hold fewer).
        first_position: the position the first bin starts at (above 0 for a sliding layer).
    """

    index: int
    layers: tuple[int, ...]
    weights: ArrayData
    positions: int
    bin_size: int
    first_position: int = 0
