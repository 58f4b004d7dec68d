"""How many bytes a key/value cache takes, by formula. No torch here.

For one layer: 2 (keys and values) * kv_heads * head_dim * positions * batch * bytes per element
(Pope et al., "Efficiently Scaling Transformer Inference", 2023; with fewer key/value heads than query
heads: Ainslie et al., "GQA", 2023). What differs between layers is how many positions they keep:

- *full*: all T.
- *sliding* (window W): a token sees itself and the W - 1 positions before it, so min(T, W) are visible
  (Beltagy et al., "Longformer", 2020; Jiang et al., "Mistral 7B", 2023). How many are *stored* between
  two steps depends on the implementation, see `Keeping`.
- *latent*: one vector of kv_lora_rank + rope_dim elements for all heads, in place of keys and values
  (DeepSeek-AI, "DeepSeek-V2", 2024).
- *none*: a layer without a cache that grows with the text.

Shapes: counts are of elements or positions; every size is in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from lab.errors import BadInput
from lab.events import LayerFacts, ModelFacts

Kind = Literal["full", "sliding", "latent", "none"]

Keeping = Literal["visible", "dynamic", "static", "everything"]
"""How many positions a sliding layer with window W stores once T have gone through it.

- "visible": min(T, W), what the newest token reads.
- "dynamic": min(T, W - 1), a cache that grows and drops what no later token can see (transformers' DynamicCache).
- "static": min(T, W), a buffer of W positions made once (transformers' StaticCache).
- "everything": T, a cache that keeps all and lets the mask do the rest.
"""


@dataclass(frozen=True)
class CacheDtype:
    """How one cached element is stored.

    Attributes:
        bits: bits of one element.
        group: elements of one key or value vector that share a scale; 0 where there are no scales.
            A last group that is not full has a scale too.
        scale_bytes: bytes of the scale, and the minimum if there is one, of one group.
        note: the same in words.
    """

    name: str
    bits: int
    group: int = 0
    scale_bytes: int = 0
    note: str = ""

    def vector_bytes(self, elements: int) -> int:
        """Bytes of one vector of `elements` elements, its scales included; a rest of bits takes a byte."""
        scales = -(-elements // self.group) * self.scale_bytes if self.group else 0
        return -(-elements * self.bits // 8) + scales


CACHE_DTYPES: dict[str, CacheDtype] = {
    dtype.name: dtype
    for dtype in (
        CacheDtype("float32", 32),
        CacheDtype("bfloat16", 16),
        CacheDtype("float16", 16),
        CacheDtype(
            "int8",
            8,
            group=64,
            scale_bytes=2,
            note="symmetric, one fp16 scale for each 64 elements of a key or value vector",
        ),
        CacheDtype(
            "int4",
            4,
            group=64,
            scale_bytes=4,
            note="asymmetric, one fp16 scale and one fp16 minimum for each 64 elements of a key or value vector",
        ),
    )
}


def cache_dtype(name: str) -> CacheDtype:
    """The cache dtype called `name`.

    Raises:
        BadInput: no such dtype; the message lists them.
    """
    if name not in CACHE_DTYPES:
        raise BadInput(f"No cache dtype {name!r}.", remedy=f"Choose one of {', '.join(CACHE_DTYPES)}.")
    return CACHE_DTYPES[name]


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """What decides one layer's bytes.

    Attributes:
        window: positions that a sliding layer sees, itself included.
        kv_lora_rank, rope_dim: size of a latent layer's vector; the other kinds have 0.
    """

    kind: Kind
    kv_heads: int = 0
    head_dim: int = 0
    window: int | None = None
    kv_lora_rank: int = 0
    rope_dim: int = 0

    def __post_init__(self) -> None:
        if self.kind in ("full", "sliding") and (self.kv_heads < 1 or self.head_dim < 1):
            raise BadInput(f"A {self.kind} layer has at least one key/value head of size 1 or more, got {self}.")
        if self.kind == "sliding" and (self.window is None or self.window < 1):
            raise BadInput(f"A sliding layer sees at least 1 position, got a window of {self.window}.")
        if self.kind == "latent" and self.kv_lora_rank < 1:
            raise BadInput(f"A latent layer keeps at least 1 element, got kv_lora_rank {self.kv_lora_rank}.")

    def position_bytes(self, dtype: CacheDtype) -> int:
        """Bytes of one position of one sequence in this layer."""
        if self.kind == "none":
            return 0
        if self.kind == "latent":
            return dtype.vector_bytes(self.kv_lora_rank) + (dtype.vector_bytes(self.rope_dim) if self.rope_dim else 0)
        return 2 * self.kv_heads * dtype.vector_bytes(self.head_dim)

    def positions(self, length: int, keeping: Keeping = "visible") -> int:
        """How many of `length` positions this layer keeps.

        Raises:
            BadInput: a negative length.
        """
        if length < 0:
            raise BadInput(f"A cache holds 0 positions or more, got {length}.")
        if self.kind == "none":
            return 0
        if self.kind != "sliding" or self.window is None or keeping == "everything":
            return length
        return min(length, self.window - 1 if keeping == "dynamic" else self.window)

    def bytes(self, length: int, dtype: CacheDtype, *, batch: int = 1, keeping: Keeping = "visible") -> int:
        """Bytes of this layer's cache once `length` positions of each of `batch` sequences went through.

        Raises:
            BadInput: a negative length or a batch below 1.
        """
        if batch < 1:
            raise BadInput(f"A batch has at least 1 sequence, got {batch}.")
        return self.positions(length, keeping) * batch * self.position_bytes(dtype)


def layer_shape(layer: LayerFacts) -> LayerShape:
    """One layer of a model's facts. A layer of kind "other" has no cache that the formula knows."""
    if layer.kind == "full":
        return LayerShape(kind="full", kv_heads=layer.kv_heads, head_dim=layer.head_dim)
    if layer.kind == "sliding":
        return LayerShape(kind="sliding", kv_heads=layer.kv_heads, head_dim=layer.head_dim, window=layer.window)
    return LayerShape(kind="none")


def layer_shapes(facts: ModelFacts) -> tuple[LayerShape, ...]:
    """All layers of a model, in order. `head_dim` is the config's own, never hidden / heads."""
    return tuple(layer_shape(layer) for layer in facts.layers)


def cache_bytes(
    layers: Iterable[LayerShape], length: int, dtype: CacheDtype, *, batch: int = 1, keeping: Keeping = "visible"
) -> int:
    """Bytes of the whole cache: the sum over the layers, each by its own kind."""
    return sum(layer.bytes(length, dtype, batch=batch, keeping=keeping) for layer in layers)


def bytes_per_token(layers: Iterable[LayerShape], dtype: CacheDtype) -> int:
    """Bytes that one more token adds to one sequence while no window is full."""
    return sum(layer.position_bytes(dtype) for layer in layers)


def with_kv_heads(layers: Iterable[LayerShape], kv_heads: int) -> tuple[LayerShape, ...]:
    """The same layers with another number of key/value heads; latent layers have none and stay."""
    return tuple(replace(layer, kv_heads=kv_heads) if layer.kind in ("full", "sliding") else layer for layer in layers)


def with_window(layers: Iterable[LayerShape], window: int) -> tuple[LayerShape, ...]:
    """The same layers, each seeing at most `window` positions; narrower windows and latent layers stay."""
    return tuple(
        replace(layer, kind="sliding", window=min(window, layer.window or window))
        if layer.kind in ("full", "sliding")
        else layer
        for layer in layers
    )


def computations(prompt: int, new: int, *, cached: bool) -> int:
    """Key/value computations (tokens that go through the layers) for `new` tokens after a prompt.

    Without a cache step i sends all prompt + i tokens through; with it the prompt goes once and then each
    new token but the last, which nobody reads. So 1,000 tokens after a first one take
    1 + 2 + ... + 1,000 = 500,500 against 1,000.

    Raises:
        BadInput: a prompt below 1 token or a negative number of new ones.
    """
    if prompt < 1 or new < 0:
        raise BadInput(f"Counting needs a prompt of at least 1 token and 0 new ones or more, got {prompt} and {new}.")
    if new == 0:
        return 0
    return prompt + new - 1 if cached else new * prompt + new * (new - 1) // 2
