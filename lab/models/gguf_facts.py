"""Facts of a GGUF file that is not converted yet, from its header alone."""

from __future__ import annotations

import math

from lab.events import LayerFacts, ModelFacts
from lab.models.architecture import MAX_LAYERS, MAX_NAME, MAX_WIDTH
from lab.models.convert import grid_of
from lab.models.gguf_header import GGUFHeader, damaged

MAX_CONTEXT = 1 << 40


def facts_of_header(header: GGUFHeader, *, model_id: str, source: str, present: bool) -> ModelFacts:
    """What a GGUF header says of its model. Windows become known once the file is converted.

    Raises:
        ModelError: a size is negative or absurd.
    """

    def number(key: str, default: int = 0, limit: int = MAX_WIDTH) -> int:
        value = header.metadata.get(f"{header.architecture}.{key}", default)
        if isinstance(value, list):
            value = max((v for v in value if isinstance(v, int)), default=default)
        value = value if isinstance(value, int) else default
        if not 0 <= value <= limit:
            raise damaged(header.path, f"its {key} is {value:,}; the lab takes up to {limit:,}")
        return value

    hidden, heads = number("embedding_length"), number("attention.head_count")
    kv_heads = number("attention.head_count_kv", heads)
    head_dim = number("attention.key_length") or (hidden // heads if heads else 0)
    shapes = {t.name: t.shape for t in header.tensors}
    embedding = shapes.get("token_embd.weight") or (0, hidden)
    layer = LayerFacts(kind="full", window=None, kv_heads=kv_heads, head_dim=head_dim)
    if number("attention.sliding_window"):
        layer = LayerFacts(kind="other", window=None, kv_heads=kv_heads, head_dim=head_dim)
    elements = [math.prod(t.shape) for t in header.tensors if not t.name.startswith("rope_freqs")]
    return ModelFacts(
        id=model_id,
        name=str(header.metadata.get("general.name") or header.path.stem)[:MAX_NAME],
        source=source,
        architecture=header.architecture,
        present=present,
        layers=(layer,) * number("block_count", limit=MAX_LAYERS),
        hidden=hidden,
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=embedding[0],
        context=number("context_length", limit=MAX_CONTEXT),
        tied="output.weight" not in shapes,
        parameters=sum(elements),
        dtype="float32",
        weight_bytes=4 * sum(elements),
        weight_hash="",
        grid=grid_of(header),
        chat_template="tokenizer.chat_template" in header.metadata,
        license=str(header.metadata.get("general.license", ""))[:MAX_NAME],
    )
