"""Shared pieces for tests of the views: a card, facts, a run's start."""

from __future__ import annotations

import pytest

from lab.events import LayerFacts, ModelFacts, RunCard, RunStarted


@pytest.fixture
def facts() -> ModelFacts:
    layer = LayerFacts(kind="full", window=None, kv_heads=3, head_dim=64)
    return ModelFacts(
        id="smollm2-135m-instruct",
        name="SmolLM2-135M-Instruct",
        source="packaged",
        architecture="LlamaForCausalLM",
        present=True,
        layers=(layer,) * 30,
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


@pytest.fixture
def started(facts: ModelFacts) -> RunStarted:
    card = RunCard(
        experiment="kv_cache",
        model=facts.id,
        weight_hash=facts.weight_hash,
        dtype="float32",
        device="cpu",
        attention="sdpa",
        threads=2,
        params={"prompt": "The", "max_new_tokens": 4},
    )
    return RunStarted(run_id="r1", card=card, facts=facts)
