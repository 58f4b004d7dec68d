"""Events of the `quantization` experiment: the same words with other weights, and packed kernels that really run."""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.base import Event
from lab.events.decoding import Candidate


@dataclass(frozen=True, kw_only=True)
class Variant(Event):
    """A model that the run compares with the dense one; "dense" itself comes first.

    Attributes:
        name: "dense", "weights", "cache", "activations", "everything"; "int8", "int8_dense_head", "int4", ...
        label: for a person.
        truth: "dense"; "simulated": dequantized weights run, no memory is saved; "packed": packed kernels run.
        notes: what must be known of it.
    """

    name: str
    label: str
    truth: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WordToken(Event):
    """A greedy token of one row.

    Attributes:
        variant: whose row. index: 0 is the first new token.
        p: its own probability. top: the most probable tokens. gap: between the two largest logits.
        is_end: it is an end token: the row ends here.
    """

    variant: str
    index: int
    token_id: int
    text: str
    p: float
    top: tuple[Candidate, ...]
    gap: float
    is_end: bool


@dataclass(frozen=True)
class WordCompared:
    """One position of the dense text as both models see it: what stands before it is the dense text for both.

    Attributes:
        index: of the new token; token_id and text are the dense row's.
        p, q: probability of that token by the dense model and by the other.
        kl: KL(dense || other) over the vocabulary at this position, nats.
        top: the other model's most probable tokens.
        flipped: its most probable one is another.
    """

    index: int
    token_id: int
    text: str
    p: float
    q: float
    kl: float
    top: tuple[Candidate, ...]
    flipped: bool


@dataclass(frozen=True, kw_only=True)
class WordsCompared(Event):
    """The dense text read by a variant, position by position.

    Attributes:
        words: in order of the text. order: indices into it, the most different (largest KL) first.
        first_difference: index of the first token at which the two greedy rows differ; -1 if they are equal.
        mean_kl: over positions, nats.
    """

    variant: str
    words: tuple[WordCompared, ...]
    order: tuple[int, ...]
    first_difference: int
    mean_kl: float


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
