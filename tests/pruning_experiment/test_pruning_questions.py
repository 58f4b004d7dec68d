"""Questions to a model and to a `pruning` run: masks while a slider moves, values of a window, N:M, bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from experiment_runs import Ran, run_experiment

from lab.errors import BadInput, NotFound, Unavailable
from lab.events import Proof
from lab.events.pruning import MaskMade, Recovered, RecoveryStep
from lab.experiments.base import RunContext
from lab.experiments.compared import ending
from lab.experiments.pruning.inspections import INSPECTIONS, READS_WEIGHTS, WorkedExampleQuestion, inspect
from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.run import make_runner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]


@pytest.fixture
def ran(tiny: Tiny) -> Ran:
    params = PruningParams(task="masks", method="wanda", calibration_tokens=64, heldout_tokens=32)
    return run_experiment(make_runner(), tiny("llama"), params)


def mask_of(answer: dict[str, Any]) -> torch.Tensor:
    bits = np.frombuffer(base64.b64decode(answer["bits"]["base64"]), np.uint8).reshape(answer["bits"]["shape"])
    return torch.from_numpy(np.unpackbits(bits, axis=1, count=answer["columns"], bitorder="little").astype(bool))


@pytest.mark.parametrize("sparsity", [0.0, 0.3, 1.0])
def test_a_quick_mask_follows_the_slider_and_is_right(ran: Ran, sparsity: float) -> None:
    answer = ran.ask("mask", method="magnitude", sparsity=sparsity)
    weight = ran.context.model.model.model.layers[0].self_attn.q_proj.weight.detach()  # type: ignore[union-attr]
    mask = mask_of(answer)
    assert answer["kept"] == int(mask.sum()) == weight.numel() - round(sparsity * weight.numel())
    if 0 < sparsity < 1:
        assert float(weight[mask].abs().min()) >= float(weight[~mask].abs().max())
        assert float(weight[~mask].abs().min()) < float(weight[mask].abs().min())


def test_other_masks_are_the_run_s_own(ran: Ran) -> None:
    told = {m.setting.method: m for m in ran.of(MaskMade)}
    for method in ("wanda", "sparsegpt"):
        answer = ran.ask("mask", method=method, sparsity=0.9)  # the run's sparsity counts
        assert base64.b64decode(answer["bits"]["base64"]) == told[method].bits.data
        assert answer["kept"] == told[method].kept
    with pytest.raises(Unavailable, match="No run made a mask of layer 1 q_proj by wanda"):
        ran.ask("mask", method="wanda", layer=1)
    with pytest.raises(BadInput, match="no mask of one matrix"):
        ran.ask("mask", method="rows")


def test_values_of_a_window_are_those_of_the_matrix(ran: Ran) -> None:
    answer = ran.ask("values", row=3, column=5, rows=8, columns=300 - 44)
    weight = ran.context.model.model.model.layers[0].self_attn.q_proj.weight.detach()  # type: ignore[union-attr]
    there = weight[3:11, 5 : 5 + answer["columns"]]
    found = np.frombuffer(base64.b64decode(answer["values"]), np.int8).reshape(answer["rows"], answer["columns"])
    values = torch.from_numpy(found.copy()).float() * answer["scale"] / 127
    assert there.shape == values.shape
    assert answer["scale"] == pytest.approx(float(weight.abs().max()))
    assert float((values - there).abs().max()) <= answer["scale"] / 127
    assert float((values - weight[4:12, 5 : 5 + answer["columns"]]).abs().max()) > answer["scale"] / 127
    with pytest.raises(BadInput, match="lies outside a matrix"):
        ran.ask("values", row=10_000)


def test_n_of_m_is_checked_along_the_input(ran: Ran) -> None:
    good = ran.ask("nm_check", method="magnitude", pattern="2:4", check="2:4")
    assert good["valid"]
    assert good["broken"] == 0
    bad = ran.ask("nm_check", method="magnitude", sparsity=0.5, check="2:4")
    assert not bad["valid"]
    assert bad["broken"] >= len(bad["named"]) > 0
    row, group, kept = bad["named"][0]
    mask = mask_of(ran.ask("mask", method="magnitude", sparsity=0.5))
    assert int(mask[row, 4 * group : 4 * group + 4].sum()) == kept > 2


def test_bytes_by_count_alone(tiny: Tiny) -> None:
    facts = tiny("llama").facts
    question = INSPECTIONS["storage"].model_validate({"rows": 1536, "columns": 576, "sparsity": 0.5})
    forms = inspect(None, facts, "storage", question)["forms"]
    weights = 1536 * 576
    assert forms["dense"]["bytes"] == 2 * weights
    assert forms["bitmap"]["bytes"] == weights // 8 + weights // 2 * 2
    assert forms["csr"]["bytes"] == weights // 2 * 4 + 4 * 1537
    assert forms["csr"]["share"] > 1  # half the weights as CSR take more than all of them dense
    assert forms["nm"]["unfit"]


def test_the_worked_example_is_the_seed_s(tiny: Tiny) -> None:
    found = inspect(None, tiny("llama").facts, "worked_example", WorkedExampleQuestion())["matrix"]
    assert found["weights"] == ((0.5, -0.1, 0.3), (0.05, -0.8, 0.2))
    assert found["became"] == ((0.5, 0.0, 0.3), (0.0, -0.8, 0.0))


def test_questions_without_a_model_or_a_name_are_refused_in_words(tiny: Tiny) -> None:
    loaded = tiny("llama")
    for name in READS_WEIGHTS:
        with pytest.raises(Unavailable, match="needs the model's weights"):
            inspect(None, loaded.facts, name, INSPECTIONS[name]())
    with pytest.raises(NotFound, match="answers no question"):
        inspect(RunContext(loaded), loaded.facts, "nothing", WorkedExampleQuestion())


def test_answers_are_small(ran: Ran) -> None:
    for name in INSPECTIONS:
        assert len(json.dumps(ran.ask(name), default=str)) < 256 * 1024


def fine_tuning(loaded: LoadedModel, steps: int) -> tuple[RunContext, Any]:
    """A fine-tune after its second step."""
    context = RunContext(model=loaded)
    params = PruningParams(
        task="recover", method="magnitude", steps=steps, calibration_tokens=64, heldout_tokens=32, learning_rate=1e-3
    )
    running = make_runner().run(context, params)
    for event in running:
        if isinstance(event, RecoveryStep) and event.step == 2:
            return context, running
    raise AssertionError("the training ended early")


def ask_enough(context: RunContext | None, loaded: LoadedModel) -> dict[str, Any]:
    return inspect(context, loaded.facts, "enough", INSPECTIONS["enough"]())


def test_enough_ends_the_fine_tune_and_the_run_goes_on_with_the_best(tiny: Tiny) -> None:
    loaded = tiny("llama")
    context, running = fine_tuning(loaded, 16)  # measured every second step
    assert ask_enough(context, loaded) == {"training": True}
    rest = list(running)
    (done,) = [event for event in rest if isinstance(event, Recovered)]
    assert (done.stopped, done.best_step, done.revived) == ("stopped", 2, 0)
    assert done.recovered.perplexity is not None
    assert done.pruned.perplexity is not None
    assert done.recovered.perplexity < done.pruned.perplexity
    assert not [event for event in rest if isinstance(event, RecoveryStep)]
    (proof,) = [event for event in rest if isinstance(event, Proof)]
    assert proof.verdict == "equal"
    assert proof.detail["fine_tuned_steps"] == 2
    assert ask_enough(context, loaded) == {"training": False}


def test_a_fine_tune_that_is_closed_no_longer_goes_on(tiny: Tiny) -> None:
    loaded = tiny("llama")
    context, running = fine_tuning(loaded, 500)
    running.close()
    assert ask_enough(context, loaded) == {"training": False}
    with pytest.raises(Unavailable, match="no training"):
        ask_enough(RunContext(model=loaded), loaded)


def test_time_that_is_over_ends_a_fine_tune_with_what_it_has(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MOST_SECONDS", 0.0)
    params = PruningParams(task="recover", method="magnitude", steps=500, calibration_tokens=64, heldout_tokens=32)
    run = run_experiment(make_runner(), tiny("llama"), params)
    assert [step.step for step in run.of(RecoveryStep)] == [0, 1]
    assert [done.stopped for done in run.of(Recovered)] == ["0 minutes were over"]
