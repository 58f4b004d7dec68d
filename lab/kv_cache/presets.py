"""Known models whose cache is computed by formula, from their public configs. Nothing is loaded; no torch."""

from __future__ import annotations

from dataclasses import dataclass

from lab.kv_cache.formula import LayerShape


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A model's cache as its public config describes it.

    Attributes:
        name: as its makers call it.
        layers: in order, from the first.
        query_heads: query heads of each layer.
        context: positions the model is made for.
        source: where the figures come from, in words.
    """

    id: str
    name: str
    layers: tuple[LayerShape, ...]
    query_heads: int
    context: int
    source: str


def _full(count: int, kv_heads: int, head_dim: int) -> tuple[LayerShape, ...]:
    return (LayerShape(kind="full", kv_heads=kv_heads, head_dim=head_dim),) * count


def _five_to_one(count: int, kv_heads: int, head_dim: int, window: int) -> tuple[LayerShape, ...]:
    """Layers in Gemma 3's order: five sliding ones, then a full one; what is left over slides."""
    full = LayerShape(kind="full", kv_heads=kv_heads, head_dim=head_dim)
    sliding = LayerShape(kind="sliding", kv_heads=kv_heads, head_dim=head_dim, window=window)
    return tuple(full if (i + 1) % 6 == 0 else sliding for i in range(count))


KNOWN_MODELS: tuple[KnownModel, ...] = (
    KnownModel(
        id="llama-2-7b",
        name="Llama-2-7B",
        layers=_full(32, 32, 128),
        query_heads=32,
        context=4096,
        source="config of meta-llama/Llama-2-7b-hf: 32 layers, 32 heads of 4096/32 = 128, one key/value head for "
        "each query head, context 4096. The lesson's example has this shape.",
    ),
    KnownModel(
        id="llama-3-8b",
        name="Llama-3-8B",
        layers=_full(32, 8, 128),
        query_heads=32,
        context=8192,
        source="config of meta-llama/Meta-Llama-3-8B: 32 layers, 32 query and 8 key/value heads of 4096/32 = 128, "
        "context 8192.",
    ),
    KnownModel(
        id="qwen3-0.6b",
        name="Qwen3-0.6B",
        layers=_full(28, 8, 128),
        query_heads=16,
        context=40960,
        source="config of Qwen/Qwen3-0.6B: 28 layers, 16 query and 8 key/value heads, its own head_dim of 128 "
        "(hidden 1024 / 16 heads would give 64, half of what is true), context 40960.",
    ),
    KnownModel(
        id="gemma-3-4b",
        name="Gemma-3-4B",
        layers=_five_to_one(34, 4, 256, 1024),
        query_heads=8,
        context=131072,
        source="text config of google/gemma-3-4b: 34 layers, 8 query and 4 key/value heads of 256, five layers with a "
        "window of 1024 to each full one (29 sliding, 5 full), context 131072.",
    ),
    KnownModel(
        id="deepseek-v3",
        name="DeepSeek-V3",
        layers=(LayerShape(kind="latent", kv_lora_rank=512, rope_dim=64),) * 61,
        query_heads=128,
        context=163840,
        source="config of deepseek-ai/DeepSeek-V3: 61 layers of latent attention, kv_lora_rank 512 and a shared rotary "
        "key of 64 in each; 128 query heads need none of their own.",
    ),
)


def known_model(model_id: str) -> KnownModel | None:
    """The known model of that id, or None."""
    return next((model for model in KNOWN_MODELS if model.id == model_id), None)
