"""Events of the `quantization` experiment: a cache in few bits, and packed kernels that really run."""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.base import Event


@dataclass(frozen=True, kw_only=True)
class QuantizedCache(Event):
    """The key/value cache at the end of a row, in bytes.

    Attributes:
        bits: of a code; residual: newest positions kept dense.
        positions: of the cache. code_bytes, scale_bytes, dense_bytes: of codes, of scales and zero points, and of the
            positions kept dense; plain_bytes: of the same cache unquantized.
        layer_bytes: for each layer, all three together.
        words: keys per channel, values per token, and since when a group is complete.
    """

    variant: str
    bits: int
    residual: int
    positions: int
    code_bytes: int
    scale_bytes: int
    dense_bytes: int
    plain_bytes: int
    layer_bytes: tuple[int, ...]
    words: str


@dataclass(frozen=True, kw_only=True)
class PackedToken(Event):
    """One decode step of one variant; variants take turns, token by token.

    Attributes:
        ms: the whole step. The first token (index 0) comes out of the prefill.
        matched: whether it is the dense row's token at this index.
    """

    variant: str
    index: int
    token_id: int
    text: str
    ms: float
    matched: bool
    is_end: bool


@dataclass(frozen=True, kw_only=True)
class PackedFigures(Event):
    """One variant measured beside the dense model in the same run.

    Attributes:
        disk_bytes: of the files that were written and loaded again; 0 where none were written. reloaded: the loaded
            codes are those written, bit for bit; None where nothing was written.
        resident_bytes: of the model's weights in memory with this variant alone; dense ones included.
        decode_ms: median of a step. tokens_per_s: 1000 / it. prefill_ms: of the prompt of `prompt_tokens`.
        speedup: dense decode_ms / this one. prefill_speedup: likewise.
        steps: decode steps measured.
        equal: new tokens equal to the dense row's before the first difference; of: how many there were.
        difference: the first difference in words, "" if there is none.
    """

    variant: str
    disk_bytes: int
    reloaded: bool | None
    resident_bytes: int
    decode_ms: float
    tokens_per_s: float
    prefill_ms: float
    prompt_tokens: int
    speedup: float
    prefill_speedup: float
    steps: int
    equal: int
    of: int
    difference: str
