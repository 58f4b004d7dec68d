"""Speculative decoding on the packaged model: short real runs, each with its proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from speculative_runs import run_to_end

from lab.events.speculative import (
    DraftReady,
    FirstToken,
    IdentityShown,
    SpeculativeFigures,
    SpeculativeRound,
    TrialPoint,
)

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = pytest.mark.model

COPY = "Repeat this sentence word for word: The blue armchair that you ordered on 3 May has arrived."


def test_greedy_with_look_up_equals_generate(packaged_model: LoadedModel) -> None:
    ran = run_to_end(packaged_model, prompt=COPY, draft="lookup", do_sample=False, gamma=4, max_new_tokens=24)
    assert ran.proof.verdict in ("equal", "tie"), ran.proof.explanation
    (figures,) = ran.of(SpeculativeFigures)
    assert figures.tokens_per_pass is not None
    assert figures.tokens_per_pass > 1.3  # the answer stands in the prompt


@pytest.mark.parametrize("draft", ["eagle", "early_exit"])
def test_a_drawn_run_follows_the_models_distribution(packaged_model: LoadedModel, draft: str) -> None:
    ran = run_to_end(packaged_model, draft=draft, exit_layer=24, max_new_tokens=20, seed=4)
    assert ran.proof.verdict == "equal", ran.proof.explanation
    assert ran.proof.detail["log_p_largest_difference"] < 1e-3
    (ready,) = ran.of(DraftReady)
    assert (ready.bytes > 0) == (draft == "eagle")
    rounds = ran.of(SpeculativeRound)
    assert len(ran.of(FirstToken)) + sum(r.emitted for r in rounds) == len(ran.outcome.token_ids)
    length = rounds[0].target_positions[0]
    for done in rounds:
        assert done.target_positions[0] == length
        length += done.emitted
        assert done.target_positions[2] == length
        assert done.target_bytes == length * 46_080  # bytes a position in fp32


@pytest.mark.parametrize("mistake", ["no_residual", "cache_not_cropped"])
def test_mistakes_turn_the_proof_red(packaged_model: LoadedModel, mistake: Any) -> None:
    proof = run_to_end(packaged_model, max_new_tokens=16, break_run=mistake).proof
    assert proof.verdict == "different"
    assert proof.explanation


def test_the_trial_has_power_on_real_distributions(packaged_model: LoadedModel) -> None:
    settings: dict[str, Any] = {"task": "trial", "draft": "lookup", "prompt": COPY, "trial_runs": 600, "seed": 1}
    ran = run_to_end(packaged_model, **settings)
    (identity,) = ran.of(IdentityShown)
    assert identity.total_variation >= 0.3
    assert identity.largest_difference < 1e-9
    assert ran.of(TrialPoint)[-1].runs == 600
    assert ran.proof.verdict == "equal", ran.proof.explanation
    # The mutation.
    assert run_to_end(packaged_model, **settings, break_run="top_token_on_rejection").proof.verdict == "different"
