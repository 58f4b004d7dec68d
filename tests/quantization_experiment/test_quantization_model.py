"""The `quantization` experiment on the packaged model: its own grid, and what methods are worth there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from experiment_runs import Ran, run_experiment

from lab.events.quantization import Coverage, ErrorHistogram, GridNote, LayerErrors
from lab.experiments.base import RunContext
from lab.experiments.quantization.inspections import INSPECTIONS, inspect
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.run import make_runner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

pytestmark = pytest.mark.model


def study(model: LoadedModel, **values: Any) -> Ran:
    """A layer study with little text."""
    return run_experiment(
        make_runner(), model, QuantizationParams(**{"calibration_tokens": 256, "heldout_tokens": 16, **values})
    )


def test_on_its_own_grid_there_is_no_error_at_all(packaged_model: LoadedModel) -> None:
    run = study(packaged_model, kind="float_minimum", group_size="32")
    note = run.of(GridNote)[0]
    assert note.changed == 0
    assert "change nothing" in note.words
    chosen = next(h for h in run.of(ErrorHistogram) if h.chosen)
    assert (chosen.max_error, chosen.exact, chosen.setting.share) == (0.0, 1.0, "32")
    others = [h for h in run.of(ErrorHistogram) if not h.chosen and h.setting.share != "16"]
    assert all(h.max_error > 0 for h in others)
    assert run.proof.verdict == "equal"
    coverage = run.of(Coverage)[0]
    assert coverage.parameters == packaged_model.facts.parameters
    assert coverage.quantized_parameters == 576 * 576


def test_gptq_is_worth_what_was_measured_before(packaged_model: LoadedModel) -> None:
    errors = study(packaged_model, method="gptq", bits=3, group_size="64").of(LayerErrors)
    chosen = next(e for e in errors if e.setting.label == "GPTQ, 3 bits, groups of 64")
    assert chosen.to_nearest is not None
    assert chosen.to_nearest <= 0.35


def test_a_smaller_last_group_is_said(packaged_model: LoadedModel) -> None:
    run = study(packaged_model, group_size="128+rest")
    chosen = next(h for h in run.of(ErrorHistogram) if h.chosen)
    assert chosen.groups == 576 * 5
    assert "the last smaller" in chosen.setting.label
    assert chosen.bits_per_weight == pytest.approx(4 + 16 * 5 / 576)


def test_six_histograms_answer_a_slider(packaged_model: LoadedModel) -> None:
    question = INSPECTIONS["histogram"](projection="down_proj", layer=29)
    answer = inspect(RunContext(model=packaged_model), packaged_model.facts, "histogram", question)
    assert [h["setting"]["share"] for h in answer["histograms"]] == ["row", "256", "128", "64", "32", "16"]
    assert all(int(h["counts"].numpy().sum()) == 576 * 1536 for h in answer["histograms"])
    squares = [h["mean_square"] for h in answer["histograms"]]
    assert squares == sorted(squares, reverse=True)
