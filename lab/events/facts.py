"""Facts of a model, read from its config and its tensors' headers; they travel to the views."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class LayerFacts:
    """What one attention layer keeps.

    Attributes:
        kind: "full", "sliding" (a window), or "other" (no key/value cache that grows with the text).
        window: positions that a sliding layer sees, itself included; None for full attention.
        kv_heads: key/value heads of this layer.
        head_dim: size of a key; values have the same size unless the kind is "other".
    """

    kind: str
    window: int | None
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model as `lab models` prints it. Sizes in bytes, counts in elements.

    Attributes:
        id: how to ask for it: "smollm2-135m-instruct", a directory, a GGUF file or a hub id.
        source: "packaged", "directory", "gguf" or "hub".
        present: whether its weights are on this machine, ready to load.
        dtype: dtype of the stored weights.
        weight_bytes: bytes of all stored tensors, tied ones once.
        weight_hash: sha256 over the stored weights, hex; "" while not present.
        grid: the quantization grid on which the stored weights lie ("Q4_1, groups of 32"), or None.
        experiments: for each experiment, "" if it can use this model, else the reason why not.
    """

    id: str
    name: str
    source: str
    architecture: str
    present: bool
    layers: tuple[LayerFacts, ...]
    hidden: int
    query_heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tied: bool
    parameters: int
    dtype: str
    weight_bytes: int
    weight_hash: str
    grid: str | None
    chat_template: bool
    license: str
    experiments: dict[str, str] = field(default_factory=dict)
