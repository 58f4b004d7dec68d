"""Families of decoders whose matrices follow from a few sizes: what each has beside the seven projections.

Counted, never loaded: each family here has as many parameters as transformers gives it (tested). No torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.errors import BadInput
from lab.models.architecture import MAX_LAYERS, MAX_VOCAB, MAX_WIDTH

MOST_WEIGHTS = 10**13
"""Of a whole model: more is a slip of the pen."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes that decide how large a decoder's matrices are.

    Attributes:
        hidden, intermediate: width of the stream and of the MLP.
        head_dim: width of a head; queries are `query_heads` of them, keys and values `kv_heads`.
        tied: whether the head is the embedding's own matrix.

    Raises:
        BadInput: a size out of its limits, or sizes that do not go together.
    """

    hidden: int
    intermediate: int
    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool

    def __post_init__(self) -> None:
        limits = {"layers": MAX_LAYERS, "vocab": MAX_VOCAB}
        for name in ("hidden", "intermediate", "layers", "query_heads", "kv_heads", "head_dim", "vocab"):
            value, limit = getattr(self, name), limits.get(name, MAX_WIDTH)
            if not 1 <= value <= limit:
                words = name.replace("_", " ")
                raise BadInput(f"{words} is {value:,}; it must be 1 to {limit:,}.", remedy=f"Correct {words}.")
        if self.query_heads % self.kv_heads:
            raise BadInput(
                f"{self.query_heads:,} heads cannot share {self.kv_heads:,} key/value heads: they do not divide.",
                remedy="Give a number of key/value heads that divides the heads; without grouping they are as many.",
            )

    @property
    def queries(self) -> int:
        """Rows of the query matrix."""
        return self.query_heads * self.head_dim

    @property
    def keys(self) -> int:
        """Rows of the key matrix, and of the value matrix."""
        return self.kv_heads * self.head_dim


def head_width(hidden: int, heads: int) -> int:
    """The width of a head where a config gives none.

    Raises:
        BadInput: the heads do not divide the hidden size.
    """
    if heads < 1 or hidden % heads:
        raise BadInput(
            f"A hidden size of {hidden:,} does not divide into {heads:,} heads.",
            remedy="Correct one of them, or give head_dim.",
        )
    return hidden // heads


@dataclass(frozen=True)
class Family:
    """A family of Llama-like decoders: seven projections, an embedding, two norms a layer and one at the end.

    Attributes:
        architecture: its class in transformers.
        tied: whether head and embedding are one where a config does not say.
        must_say: sizes for which the family has defaults of its own, so that a config without them cannot be counted.
        vectors: numbers in a layer's vectors beside the two norms: biases and further norms.
    """

    architecture: str
    tied: bool = False
    must_say: tuple[str, ...] = ()
    vectors: Callable[[Sizes], int] = lambda _sizes: 0


_KV = ("num_key_value_heads",)
_KV_AND_WIDTH = ("num_key_value_heads", "head_dim")
FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaForCausalLM"),
    "mistral": Family("MistralForCausalLM", must_say=_KV),
    "qwen2": Family("Qwen2ForCausalLM", must_say=_KV, vectors=lambda s: s.queries + 2 * s.keys),
    "qwen3": Family("Qwen3ForCausalLM", must_say=_KV_AND_WIDTH, vectors=lambda s: 2 * s.head_dim),
    "gemma": Family("GemmaForCausalLM", tied=True, must_say=_KV_AND_WIDTH),
    "gemma2": Family("Gemma2ForCausalLM", tied=True, must_say=_KV_AND_WIDTH, vectors=lambda s: 2 * s.hidden),
    "gemma3_text": Family(
        "Gemma3ForCausalLM", tied=True, must_say=_KV_AND_WIDTH, vectors=lambda s: 2 * s.hidden + 2 * s.head_dim
    ),
    "smollm3": Family("SmolLM3ForCausalLM", tied=True, must_say=_KV),
    "granite": Family("GraniteForCausalLM"),
    "phi3": Family("Phi3ForCausalLM"),
    "olmo2": Family("Olmo2ForCausalLM", vectors=lambda s: s.queries + s.keys),
}
"""By `model_type`."""


def family_of(architecture: str) -> Family | None:
    """The family of a class of transformers, None if it is none of them."""
    return next((family for family in FAMILIES.values() if family.architecture == architecture), None)
