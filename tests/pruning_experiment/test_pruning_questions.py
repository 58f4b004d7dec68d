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
from lab.events.pruning import MaskMade
from lab.experiments.base import RunContext
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
