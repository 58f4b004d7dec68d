"""The real model, pruned: what the papers claim holds in shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from experiment_runs import run_experiment

from lab.events.pruning import CurvePoint
from lab.experiments.pruning import curve
from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.run import make_runner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = pytest.mark.model


def test_wanda_loses_a_fifth_of_what_magnitude_loses_at_half(
    packaged_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sun et al. 2023, in shape: perplexity at 50 %, Wanda at most a fifth of magnitude's."""
    monkeypatch.setattr(curve, "COARSE", (0.5,))
    monkeypatch.setattr(curve, "FINE", ())
    params = PruningParams(task="curve", method="wanda", sparsity=0.5, calibration_tokens=2048, heldout_tokens=512)
    run = run_experiment(make_runner(), packaged_model, params)
    found = {p.setting.method: p.divergence for p in run.of(CurvePoint)}
    wanda, magnitude = found["wanda"], found["magnitude"]
    assert wanda is not None
    assert magnitude is not None
    assert wanda.perplexity is not None
    assert magnitude.perplexity is not None
    assert wanda.dense_perplexity is not None
    assert wanda.dense_perplexity < wanda.perplexity <= magnitude.perplexity / 5
    assert wanda.kl < magnitude.kl
    assert run.proof.verdict == "equal"
