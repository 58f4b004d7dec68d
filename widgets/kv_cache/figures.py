"""The numbers of the page, each with its badge: one home for each."""

from __future__ import annotations

from typing import Any

from widgets.format import split_bytes
from widgets.kv_cache.state import KVCacheState

MEASURED, DERIVED = "MEASURED", "DERIVED"


def headline(state: KVCacheState, upto: int) -> list[dict[str, Any]]:
    """What stands above the pictures after new token `upto` (-1: after the prefill)."""
    return [_in_cache(state, upto), _per_token(state), _faster(state, upto)]


def race_figures(state: KVCacheState, upto: int) -> list[dict[str, Any]]:
    """What stands with the race: computations with and without, the prefill, the median decode step."""
    return [_computed(state, upto), _prefill(state), _decode(state, upto)]


def _figure(name: str, value: str | None, unit: str, badge: str, note: str) -> dict[str, Any]:
    return {"id": name, "value": value or "", "unit": unit, "badge": badge, "note": note}


def _in_cache(state: KVCacheState, upto: int) -> dict[str, Any]:
    ledger = state.ledger_at(upto)
    if ledger is None:
        return _figure("bytes", None, "in the cache", MEASURED, "")
    value, unit = split_bytes(sum(ledger.layer_bytes))
    difference = sum(ledger.layer_bytes) - sum(ledger.formula_bytes)
    note = "the formula agrees to the byte" if difference == 0 else f"the formula differs by {difference:+,} bytes"
    return _figure("bytes", value, f"{unit} in the cache", MEASURED, f"{ledger.cache_length} tokens; {note}")


def _per_token(state: KVCacheState) -> dict[str, Any]:
    facts = state.started.facts if state.started else None
    first = state.prefill_ledgers[0] if state.prefill_ledgers else None
    if facts is None or first is None or not first.cache_length:
        return _figure("per_token", None, "a token", DERIVED, "")
    value, unit = split_bytes(sum(first.formula_bytes) / first.cache_length)
    return _figure("per_token", value, f"{unit} a token", DERIVED, _formula(state))


def _formula(state: KVCacheState) -> str:
    facts = state.started.facts if state.started else None
    if facts is None:
        return ""
    if len({(layer.kind, layer.kv_heads, layer.head_dim) for layer in facts.layers}) == 1:
        dtype = state.started.card.dtype if state.started else "float32"
        size = {"float32": 4, "bfloat16": 2, "float16": 2}.get(dtype, 4)
        return f"2 · {len(facts.layers)} layers · {facts.kv_heads} heads · {facts.head_dim} · {size} bytes"
    return "summed over the kinds of layers"


def _faster(state: KVCacheState, upto: int) -> dict[str, Any]:
    speedup = state.speedup_at(upto)
    if speedup is None:
        note = "both are really run" if state.compares else "not compared: see Compare"
        return _figure("faster", None, "× faster with it", MEASURED, note)
    beside = state.finished.ran_beside if state.finished else 0
    note = f"{speedup.with_ms:.0f} ms against {speedup.without_ms:.0f} ms, medians of {speedup.steps} tokens"
    if beside:
        note += f"; under load, {beside} other run{'s' if beside > 1 else ''} beside it"
    return _figure("faster", f"{speedup.ratio:.1f}", f"× faster, token {speedup.index + 1}", MEASURED, note)


def _computed(state: KVCacheState, upto: int) -> dict[str, Any]:
    made = sum(chunk.stop - chunk.start for chunk in state.chunks)
    made += sum(t.computed for t in state.tokens[: upto + 1] if t.phase == "decode")
    without = sum(u.computed for i, u in state.uncached.items() if i <= upto)
    if not state.uncached:
        return _figure("computed", f"{made:,}" if made else None, "keys and values made", MEASURED, "with the cache")
    covered = max(i for i in state.uncached if i <= max(upto, min(state.uncached)))
    note = f"against {without:,} without it, for the first {covered + 1} new tokens"
    return _figure("computed", f"{made:,}", "keys and values made", MEASURED, note)


def _prefill(state: KVCacheState) -> dict[str, Any]:
    if not state.chunks:
        return _figure("prefill", None, "ms prefill", MEASURED, "")
    passes = len(state.chunks)
    note = f"{state.prompt_length} prompt tokens in {passes} pass{'es' if passes > 1 else ''}"
    return _figure("prefill", f"{state.prefill_ms():.0f}", "ms prefill", MEASURED, note)


def _decode(state: KVCacheState, upto: int) -> dict[str, Any]:
    times, median = state.decode_times(upto), state.decode_ms(upto)
    if median is None:
        return _figure("decode", None, "ms a decode step", MEASURED, "")
    note = f"median of {len(times)}, from {times[0]:.0f} to {times[-1]:.0f} ms; {1000 / median:.1f} tokens/s"
    return _figure("decode", f"{median:.0f}", "ms a decode step", MEASURED, note)
