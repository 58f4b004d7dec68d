"""The proof of a whole pruned model turns red when what was made, or how, is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from lab.events import Proof
from lab.experiments.base import RunContext
from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.rows_check import wrong_logits
from lab.experiments.pruning.run import make_runner
from lab.experiments.pruning.whole_check import Threshold, passed_on, wrong_error, wrong_passed_on
from lab.pruning import rows_model
from lab.pruning.global_magnitude import global_magnitude
from lab.pruning.sparsegpt_core import Removing
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
SMALL: dict[str, Any] = {
    "task": "words",
    "calibration_tokens": 96,
    "heldout_tokens": 32,
    "max_new_tokens": 4,
    "batch_tokens": 32,
    "steps": 2,
}


def proved(loaded: LoadedModel, **given: Any) -> Proof:
    params = PruningParams.model_validate({**SMALL, **given})
    runner = make_runner()
    runner.prepare(loaded.facts, params)
    return [event for event in runner.run(RunContext(loaded), params) if isinstance(event, Proof)][-1]


@pytest.mark.parametrize("mistake", ["revived", "one_too_many", "mask_of_neighbour"])
@pytest.mark.parametrize("task", ["words", "recover"])
def test_mistakes_with_one_threshold_for_the_model_show(tiny: Tiny, task: str, mistake: str) -> None:
    assert proved(tiny("llama"), method="global_magnitude", task=task).verdict == "equal"
    assert proved(tiny("llama"), method="global_magnitude", task=task, break_run=mistake).verdict == "different"


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_a_smaller_model_with_columns_out_of_step_shows(tiny: Tiny, kind: str) -> None:
    good = proved(tiny(kind), method="rows")
    assert good.verdict == "equal", good
    broken = proved(tiny(kind), method="rows", break_run="mask_of_neighbour")
    assert broken.verdict == "different"
    assert "not the dense one without what went" in broken.explanation


def test_a_smaller_model_that_computes_something_else_shows(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its matrices are right, and its model is not: only the logits tell."""
    build = rows_model._fill

    def scaled(module: Any, source: Any, kept: Any) -> None:
        build(module, source, kept)
        if type(module).__name__ == "LlamaRMSNorm":
            module.weight = torch.nn.Parameter(module.weight * 1.5, requires_grad=False)

    monkeypatch.setattr(rows_model, "_fill", scaled)
    proof = proved(tiny("llama"), method="rows")
    assert proof.verdict == "different"
    assert "logits" in proof.explanation


def test_removing_the_best_channels_shows(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    import lab.pruning.rows as room

    keep = room._kept
    monkeypatch.setattr(room, "_kept", lambda scores, gone: keep(-scores, gone))
    proof = proved(tiny("llama"), method="rows")
    assert proof.verdict == "different"
    assert "stayed" in proof.explanation


def test_sparsegpt_that_passes_nothing_on_shows(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proved(tiny("llama"), method="sparsegpt").verdict == "equal"
    settle = Removing.settle

    def silent(self: Removing, column: int, i: int, place: int, error: Tensor) -> None:
        settle(self, column, i, place, error)
        error.zero_()

    monkeypatch.setattr(Removing, "settle", silent)
    proof = proved(tiny("llama"), method="sparsegpt")
    assert proof.verdict == "different"
    assert "SparseGPT's formula" in proof.explanation


def test_a_row_passes_on_what_each_removed_weight_loses() -> None:
    """Two weights with inputs that agree: the second takes over what the first gave."""
    hessian = torch.tensor([[1.0, 0.999], [0.999, 1.0]], dtype=torch.float64)
    upper = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)
    wanted = passed_on([1.0, 2.0], [False, True], upper)
    assert wanted.tolist() == pytest.approx([0.0, 2.999])
    assert not wrong_passed_on([1.0, 2.0], wanted, wanted + 1e-6, torch.float32)
    assert wrong_passed_on([1.0, 2.0], wanted, torch.tensor([0.0, 2.0]).double(), torch.float32)
    assert passed_on([1.0, 2.0], [True, False], upper).tolist() == [1.0, 0.0]  # nothing is passed back


def test_weights_that_changed_after_the_method_measured_them_show() -> None:
    dense = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    runs = dense.masked_fill(dense.abs() < 0.5, 0.0)
    told = float((runs - dense).norm() / dense.norm())
    assert wrong_error(dense, runs, told) == ""
    assert "was measured" in wrong_error(dense, runs * 1.01, told)


def test_one_threshold_is_counted_and_compared_over_all_matrices() -> None:
    weights = {f"w{i}": torch.randn(4, 6, generator=torch.Generator().manual_seed(i)) * (i + 1) for i in range(3)}
    masks = finished(global_magnitude(weights, 0.5)).masks

    def wrong(chosen: dict[str, Tensor]) -> str:
        threshold = Threshold(0.5)
        for name, weight in weights.items():
            threshold.add(weight, chosen[name])
        return threshold.wrong()

    assert wrong(masks) == ""
    assert "were asked for" in wrong(masks | {"w0": torch.ones(4, 6, dtype=torch.bool)})
    each = {name: weight.abs() > weight.abs().median() for name, weight in weights.items()}  # as many, matrix by matrix
    assert "stayed" in wrong(each)


def test_logits_are_the_same_up_to_rounding() -> None:
    logits = torch.linspace(-20, 20, 100).view(2, 50)
    assert wrong_logits(logits + 1e-4, logits, torch.float32) == ""
    assert wrong_logits(logits + 0.1, logits, torch.float32)
    assert wrong_logits(logits + 0.1, logits, torch.bfloat16) == ""
    assert wrong_logits(logits * 2, logits, torch.bfloat16)
