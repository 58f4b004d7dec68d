"""What two runs of `kv_cache` have to compare: times with and without the cache, bytes, tokens."""

from __future__ import annotations

from widgets.comparison.told import (
    BYTES,
    COUNT,
    DERIVED,
    MS,
    SPEEDUP,
    Line,
    Text,
    Token,
    Told,
    collect,
    figure,
)
from widgets.kv_cache.state import KVCacheState

STATE = KVCacheState
TEXT, CACHE = "text length, tokens", "cache length, tokens"
MIB = 1024 * 1024


def told(state: KVCacheState) -> Told:
    """Figures at the newest token, lines over the text's length, the new tokens."""
    last = state.steps - 1
    faster = state.speedup_at(last)
    ledger, first = state.ledger_at(last), state.prefill_ledgers[0] if state.prefill_ledgers else None
    counted = sum(ledger.layer_bytes) if ledger else None
    each = sum(first.formula_bytes) / first.cache_length if first and first.cache_length else None
    at = state.prompt_length
    return collect(
        figures=(
            figure("decode", "decode step with the cache, median", state.decode_ms(last), MS),
            figure("without", "token without the cache, newest", faster.without_ms if faster else None, MS),
            figure("faster", "faster with the cache", faster.ratio if faster else None, SPEEDUP),
            figure("prefill", "prefill", state.prefill_ms() if state.chunks else None, MS),
            figure("bytes", "bytes in the cache at the end", counted, BYTES),
            figure("per_token", "bytes a token, by the formula", each, BYTES, DERIVED),
            figure("prompt", "prompt tokens", at or None, COUNT),
            figure("tokens", "new tokens", state.steps or None, COUNT),
        ),
        lines=(
            Line(
                "with",
                "A new token with the cache",
                TEXT,
                "ms a token",
                tuple((at + t.index, t.ms) for t in state.tokens if t.phase == "decode"),
                timed=True,
            ),
            Line(
                "without",
                "A new token without the cache",
                TEXT,
                "ms a token",
                tuple((at + i, u.ms) for i, u in sorted(state.uncached.items()) if i > 0),
                timed=True,
            ),
            Line(
                "bytes",
                "Bytes in the cache",
                CACHE,
                "cache, MiB",
                tuple((x.cache_length, sum(x.layer_bytes) / MIB) for _, x in sorted(state.ledgers.items())),
            ),
        ),
        texts=(Text("new", "New tokens", tuple(Token(t.token_id, t.text) for t in state.tokens)),),
    )
