"""The experiment on the packaged model: what its presets claim and its proofs, for real."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from beam_runs import Ran, generated, run_to_end, same, searched

from lab.decoding.beam.search import Settings
from lab.events.beam_search import BeamResult, BeamStep, PathFollowed
from lab.events.decoding import PromptEncoded
from lab.kv_cache.formula import bytes_per_token, cache_dtype, layer_shapes

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = pytest.mark.model

COLOURS: dict[str, Any] = {
    "prompt": "The three primary colours are",
    "max_new_tokens": 16,
    "end_token_ids": (2, 30, 198),
    "sampled_path": False,
}


@pytest.fixture(scope="module")
def ran(packaged_model: LoadedModel) -> Ran:
    """The first preset, shorter."""
    return run_to_end(packaged_model, **COLOURS)


def test_beam_search_finds_a_likelier_text_than_greedy(ran: Ran) -> None:
    (result,), (greedy,) = ran.of(BeamResult), ran.of(PathFollowed)
    assert result.texts[0] == " red, orange, and yellow."
    assert "".join(greedy.texts) == " the primary colours of the human eye: red, blue, and yellow."
    assert result.hypotheses[0].score > greedy.score + 0.05
    assert result.hypotheses[0].sum_log_prob > math.fsum(greedy.log_probs) + 5


def test_its_hypotheses_and_scores_are_those_of_generate(packaged_model: LoadedModel, ran: Ran) -> None:
    assert ran.proof.verdict == "equal"
    assert (ran.proof.compared, ran.proof.matched, ran.proof.unit) == (4, 4, "hypotheses")
    assert ran.proof.detail["path"] == "llama"
    assert ran.proof.detail["largest_score_difference"] < 1e-5
    # And once more, called as a user would.
    prompt = ran.of(PromptEncoded)[0].token_ids
    settings = Settings(4, 16, 1.0, "false", (2, 30, 198))
    assert same(searched(packaged_model.model, settings, prompt), generated(packaged_model.model, settings, prompt))


def test_the_prompt_is_kept_once_for_all_beams(packaged_model: LoadedModel, ran: Ran) -> None:
    assert bytes_per_token(layer_shapes(packaged_model.facts), cache_dtype("float32")) == 46_080
    prompt = len(ran.of(PromptEncoded)[0].token_ids)
    for step in ran.of(BeamStep):
        assert step.cache_bytes == step.formula_bytes == 46_080 * (prompt + 4 * step.index)


@pytest.mark.parametrize("mistake", ["cache_not_reordered", "count_prompt_in_length", "drop_end_token"])
def test_each_mistake_is_caught(packaged_model: LoadedModel, mistake: str) -> None:
    broken = run_to_end(packaged_model, **COLOURS, break_run=mistake)
    assert broken.proof.verdict == "different"
    assert broken.proof.matched < broken.proof.compared
    assert "What was seen" in broken.proof.explanation


def test_the_length_penalty_changes_the_winner(packaged_model: LoadedModel) -> None:
    ask = {"prompt": "What is the capital of France?", "chat": True, "max_new_tokens": 16, "sampled_path": False}
    plain, longer = (run_to_end(packaged_model, **ask, length_penalty=power) for power in (1.0, 2.0))
    assert plain.outcome.text == "The capital of France is Paris.<|im_end|>"
    assert len(longer.outcome.token_ids) == 16
    assert longer.outcome.text.startswith("The capital of France is Paris,")
    assert plain.proof.verdict == longer.proof.verdict == "equal"
