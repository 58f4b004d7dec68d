"""The packaged model's facts, for tests that need some model's and load none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.events import LayerFacts, ModelFacts

SMOLLM2 = ModelFacts(
    id="smollm2-135m-instruct",
    name="SmolLM2-135M-Instruct",
    source="packaged",
    architecture="LlamaForCausalLM",
    present=True,
    layers=(LayerFacts(kind="full", window=None, kv_heads=3, head_dim=64),) * 30,
    hidden=576,
    query_heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    context=8192,
    tied=True,
    parameters=134_515_008,
    dtype="float32",
    weight_bytes=538_060_032,
    weight_hash="0" * 64,
    grid="Q4_1, groups of 32",
    chat_template=True,
    license="Apache-2.0",
)


def sample_facts(**changed: Any) -> ModelFacts:
    """The packaged model's facts, some of them changed. Its weight hash is none of a real file."""
    return replace(SMOLLM2, **changed)
