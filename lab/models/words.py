"""A model's facts in words, the same for the command line and the page."""

from __future__ import annotations

from collections import Counter

from lab.events import LayerFacts, ModelFacts

MIB, GIB = 1 << 20, 1 << 30
_SOURCES = {
    "packaged": "packaged, from the package index",
    "directory": "a directory in transformers format",
    "gguf": "a GGUF file",
    "hub": "the Hugging Face hub",
}


def size_in_words(count: int) -> str:
    """Bytes as MiB or GiB: "513 MiB"."""
    return (
        f"{count / GIB:.2f} GiB"
        if count >= GIB
        else f"{count / MIB:.1f} MiB"
        if count < 10 * MIB
        else f"{count / MIB:,.0f} MiB"
    )


def count_in_words(count: int) -> str:
    """A number of parameters: "134.5 million"."""
    if count >= 10**9:
        return f"{count / 10**9:.2f} billion"
    return f"{count / 10**6:.1f} million" if count >= 10**6 else f"{count:,}"


def layers_in_words(layers: tuple[LayerFacts, ...]) -> str:
    """How many layers of each kind: "18: 15 sliding (window 512), 3 full"."""
    kinds = Counter((layer.kind, layer.window) for layer in layers)
    if len(kinds) == 1 and ("full", None) in kinds:
        return f"{len(layers)}, all with full attention"
    names = {"full": "full attention", "sliding": "sliding", "other": "without a plain key/value cache"}
    parts = [
        f"{count} {names.get(kind, kind)}" + (f" (window {window:,})" if window is not None else "")
        for (kind, window), count in kinds.most_common()
    ]
    return f"{len(layers)}: {', '.join(parts)}"


def heads_in_words(facts: ModelFacts) -> str:
    """Query and key/value heads, and how they share: "9 query, 3 key/value (3 query heads share one)"."""
    if not facts.query_heads:
        return "none"
    text = f"{facts.query_heads} query, {facts.kv_heads} key/value"
    if len({layer.kv_heads for layer in facts.layers}) > 1:
        counts = sorted({layer.kv_heads for layer in facts.layers})
        return f"{facts.query_heads} query, {counts[0]} to {counts[-1]} key/value, by layer"
    share = facts.query_heads // max(facts.kv_heads, 1)
    return f"{text} ({share} query heads share one)" if share > 1 else f"{text} (one each)"


def cache_bytes_per_token(facts: ModelFacts, item_bytes: int) -> int:
    """Bytes that one more token adds to the key/value cache: 2 * kv_heads * head_dim * item_bytes, over the layers.

    Sliding layers count until their window is full; layers of another kind count nothing.
    """
    return sum(2 * layer.kv_heads * layer.head_dim * item_bytes for layer in facts.layers if layer.kind != "other")


def facts_in_words(facts: ModelFacts) -> list[tuple[str, str]]:
    """All facts as pairs of a label and words, in the order in which they are read."""
    rows = [
        ("id", facts.id),
        ("name", facts.name),
        ("source", _SOURCES.get(facts.source, facts.source)),
        ("on this machine", "yes, ready to load" if facts.present else "no, fetched or converted when first used"),
        ("architecture", facts.architecture),
        ("parameters", f"{count_in_words(facts.parameters)} ({facts.parameters:,})"),
        ("layers", layers_in_words(facts.layers)),
        ("heads", heads_in_words(facts)),
        ("head_dim", str(facts.head_dim) if facts.head_dim else "none"),
        ("hidden", f"{facts.hidden:,}"),
        ("vocabulary", f"{facts.vocab:,} tokens"),
        ("context", f"{facts.context:,} tokens" if facts.context else "not stated"),
        ("embeddings", "tied: the output matrix is the input embedding" if facts.tied else "not tied"),
        ("stored", f"{facts.dtype}, {size_in_words(facts.weight_bytes)} ({facts.weight_bytes:,} bytes)"),
        ("weight hash", facts.weight_hash or "known once it is here"),
        ("grid", _grid(facts.grid)),
        ("cache per token", f"{cache_bytes_per_token(facts, 4):,} bytes in float32"),
        ("chat template", "yes" if facts.chat_template else "no"),
        ("licence", facts.license or "not stated"),
    ]
    rows += [(f"experiment {name}", reason or "can use it") for name, reason in sorted(facts.experiments.items())]
    return rows


def _grid(grid: str | None) -> str:
    if grid is None:
        return "none known"
    return f"the weights come from {grid}: quantizing them again on that grid finds almost no error"
