"""From what the decoder and the ledger give to events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from lab.decoding.loop import Step
from lab.events import ArrayData
from lab.events.decoding import Candidate
from lab.events.kv_cache import AttentionRead, CacheLedger, TokenDecoded
from lab.kv_cache.ledger import LedgerRow
from lab.kv_cache.observed import Observation
from lab.kv_cache.pooling import max_pool_positions


def token_event(step: Step, text: str, *, is_end: bool, text_of: Callable[[int], str]) -> TokenDecoded:
    """One new token. `text` is what it adds to the text so far, `text_of` shows a candidate by itself."""
    return TokenDecoded(
        index=step.index,
        token_id=step.token_id,
        text=text,
        log_prob=step.log_prob,
        ms=step.ms,
        phase="prefill" if step.index == 0 else "decode",
        top=tuple(Candidate(token, text_of(token), log_prob) for token, log_prob in step.top),
        gap=step.gap,
        computed=step.computed,
        is_end=is_end,
    )


def ledger_event(rows: Sequence[LedgerRow], index: int, length: int) -> CacheLedger:
    """The ledger after new token `index`, -1 after a prefill chunk."""
    return CacheLedger(
        index=index,
        phase="prefill" if index <= 0 else "decode",
        cache_length=length,
        layer_bytes=tuple(row.bytes for row in rows),
        layer_positions=tuple(row.positions for row in rows),
        formula_bytes=tuple(row.formula_bytes for row in rows),
        reserved_bytes=sum(row.reserved_bytes for row in rows),
    )


def attention_event(index: int, layers: tuple[int, ...], attention: Tensor, length: int) -> AttentionRead:
    """The newest position's (layer, head, position) weights, max-pooled to at most 128 bins, in float16.

    Args:
        length: tokens that have gone through the layers; the last weight belongs to position length - 1.
    """
    pooled, size = max_pool_positions(attention)
    positions = attention.shape[-1]
    return AttentionRead(
        index=index,
        layers=layers,
        weights=ArrayData.of(pooled.numpy(), "float16"),
        positions=positions,
        bin_size=size,
        first_position=length - positions,
    )


def observation(step: Step, rows: Sequence[LedgerRow], length: int) -> Observation:
    """What was seen in this step, for `findings` and for asking later."""
    return Observation(
        token_id=step.token_id,
        fed_token_id=step.fed_token_id,
        fed_position=step.fed_position,
        length=length,
        stored=tuple(row.positions for row in rows),
        expected=tuple(row.expected_positions for row in rows),
    )
