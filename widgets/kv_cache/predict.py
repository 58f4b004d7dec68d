"""What a visitor guesses before the `kv_cache` page: the cache's size."""

from __future__ import annotations

from lab.events import Recording
from lab.events.kv_cache import CacheLedger
from widgets.format import format_bytes, format_count
from widgets.front.prediction import Prediction
from widgets.kv_cache.lesson import ELEMENT_BYTES

MIB = 1024 * 1024


def prediction(recording: Recording) -> Prediction | None:
    """The question, from the last ledger of the run; None where there is none."""
    last = next((e for e in reversed(recording.events) if isinstance(e, CacheLedger)), None)
    facts, size = recording.started.facts, ELEMENT_BYTES.get(recording.started.card.dtype)
    if last is None or size is None:
        return None
    counted, tokens, layers = sum(last.layer_bytes), last.cache_length, len(facts.layers)
    factors = (2, layers, facts.kv_heads, facts.head_dim, tokens, size)
    product = 2 * layers * facts.kv_heads * facts.head_dim * tokens * size
    formula = f"{' · '.join(format_count(f) for f in factors)} = {format_count(product)} bytes"
    agrees = "the same to the byte" if product == counted else f"the formula alone says {format_bytes(product)}"
    return Prediction(
        text=f"The run ends with {tokens} tokens in the cache: a key and a value for each, in {layers} layers with "
        f"{facts.kv_heads} key/value heads of {facts.head_dim} numbers, {size} bytes a number. How many MiB is that?",
        value=counted / MIB,
        unit="MiB",
        figure=format_bytes(counted),
        why=f"Counted from the tensors after the last token: {format_count(counted)} bytes, "
        f"{format_bytes(counted / tokens)} a token. By the formula {formula}: {agrees}. All {facts.query_heads} query "
        f"heads with keys of their own would take {facts.query_heads / facts.kv_heads:g} × as much.",
        badge="MEASURED",
    )
