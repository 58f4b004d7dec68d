"""What a visitor guesses before the `kv_cache` page: the cache's size."""

from __future__ import annotations

from lab.events import Recording
from lab.events.kv_cache import CacheLedger
from lab.strings import Strings
from widgets.format import format_bytes, format_count
from widgets.front.prediction import Prediction
from widgets.kv_cache.lesson import ELEMENT_BYTES

MIB = 1024 * 1024


def prediction(recording: Recording, words: Strings) -> Prediction | None:
    """The question, from the last ledger of the run; None where there is none."""
    last = next((e for e in reversed(recording.events) if isinstance(e, CacheLedger)), None)
    facts, size = recording.started.facts, ELEMENT_BYTES.get(recording.started.card.dtype)
    if last is None or size is None:
        return None
    counted, tokens, layers = sum(last.layer_bytes), last.cache_length, len(facts.layers)
    factors = (2, layers, facts.kv_heads, facts.head_dim, tokens, size)
    product = 2 * layers * facts.kv_heads * facts.head_dim * tokens * size
    told = {
        "counted": format_count(counted),
        "each": format_bytes(counted / tokens),
        "formula": f"{' · '.join(format_count(f) for f in factors)} = {format_count(product)}",
        "agrees": words("kv_cache.prediction.same")
        if product == counted
        else words("kv_cache.prediction.other", size=format_bytes(product)),
        "query": facts.query_heads,
        "ratio": f"{facts.query_heads / facts.kv_heads:g}",
    }
    return Prediction(
        text=words(
            "kv_cache.prediction.text",
            tokens=tokens,
            layers=layers,
            heads=facts.kv_heads,
            dim=facts.head_dim,
            size=size,
        ),
        value=counted / MIB,
        unit="MiB",
        figure=format_bytes(counted),
        why=words("kv_cache.prediction.why", **told),
        badge="MEASURED",
    )
