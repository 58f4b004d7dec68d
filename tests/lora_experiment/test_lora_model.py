"""The packaged adapter on the packaged model: before and after are what its card says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from experiment_runs import run_experiment

from lab.events.lora import AdapterFacts, UpdateMap
from lab.events.words import WordsCompared, WordToken
from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.run import make_runner
from lab.lora.packaged import packaged_card

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = pytest.mark.model


def test_before_and_after_are_those_of_the_card(packaged_model: LoadedModel) -> None:
    card = packaged_card()
    told = card["texts"][0]
    settings = LoraParams(prompt=told["prompt"], max_new_tokens=24, heldout_tokens=16)
    assert LoraParams().prompt in {text["prompt"] for text in card["texts"]}
    run = run_experiment(make_runner(), packaged_model, settings)
    ends = packaged_model.end_token_ids

    def text(variant: str) -> str:
        ids = [t.token_id for t in run.of(WordToken) if t.variant == variant and t.token_id not in ends]
        return str(packaged_model.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    assert text("dense") == told["before"]
    assert text("adapter") == text("merged") == told["after"]
    (facts,) = run.of(AdapterFacts)
    assert facts.parameters == card["config"]["parameters"]
    assert (facts.matches, facts.effectless) == ("", "")
    assert run.proof.verdict == "equal", run.proof.explanation
    assert run.proof.detail["adapter_max_logit_difference"] <= 1e-5 * run.proof.detail["adapter_largest_logit"]
    assert run.of(UpdateMap)[0].norms.shape == (30, 2)
    assert run.of(WordsCompared)[0].mean_kl > 0.1
    # the slider: at 0 the base's probabilities, at 1 the adapter's
    compared = run.of(WordsCompared)[0]
    for factor, field in ((0.0, "p"), (1.0, "q")):
        answer = run.ask("scale", factor=factor)
        for word, token in zip(compared.words, answer["tokens"], strict=True):
            assert token["p"] == pytest.approx(getattr(word, field), abs=1e-4)
