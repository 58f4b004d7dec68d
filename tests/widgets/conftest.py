"""Shared pieces for tests of the views: a card, facts, a run's start."""

from __future__ import annotations

import pytest
from samples import sample_facts

from lab.events import ModelFacts, RunCard, RunStarted


@pytest.fixture
def facts() -> ModelFacts:
    return sample_facts()


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
