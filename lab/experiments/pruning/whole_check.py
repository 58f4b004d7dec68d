"""What a whole model with masks is held against: some rows of every matrix, and counts of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lab.calibration.factor import Factor, factoring
from lab.calibration.gather import calibrating
from lab.calibration.inputs import LayerInputs
from lab.experiments.compared.progress import Made, shares
from lab.experiments.compared.targets import put, relative
from lab.experiments.pruning.checked import Sample
from lab.experiments.pruning.mistakes import broken
from lab.experiments.pruning.pruned import Whole
from lab.experiments.pruning.reference import counted_bits, wrong_count
from lab.experiments.pruning.setup import Setup
from lab.models.linear import out_in
from lab.pruning.mask_bits import pack_mask
from lab.steps import relay

FEW = 14
"""Matrices for which the calibration text is read once more."""
AGAIN = "reading the calibration text once more"


def checking(setup: Setup, whole: Whole, windows: list[list[int]]) -> Made[None]:
    """Sample every matrix for the proof, with the run's mistake in what runs."""
    scheme, mistake = whole.scheme, setup.params.break_run
    inputs: Mapping[str, LayerInputs] = {}
    first = setup.targets[0].name
    if scheme.method == "wanda":
        few = [target.name for target in setup.targets[:: max(1, len(setup.targets) // FEW)]]
        inputs = yield from relay(calibrating(setup.model, windows, few, hessian=False, keep=0), shares(AGAIN))
    elif scheme.method == "sparsegpt":
        # Only the first matrix read what the dense model gives it: those behind it read a pruned model's states.
        inputs = yield from relay(calibrating(setup.model, windows, [first], keep=0), shares(AGAIN))
    threshold = Threshold(scheme.sparsity)
    for target in setup.targets:
        one = whole.modules.get(target.name)
        mask = None if one is None else one.mask
        if one is None or mask is None:
            continue
        weight, before = target.weight, out_in(whole.shell.get_submodule(target.name))
        told, wrong = broken(mask, before, weight, scheme, mistake)
        runs = before if mistake == "nothing" else wrong.to(before.dtype)
        if mistake != "nothing" and setup.params.task != "recover":  # a fine-tune starts from weights that fit the mask
            put(whole.shell, target, wrong)
        values = before if scheme.method == "sparsegpt" else weight.masked_fill(~mask, 0.0)
        squares = inputs[target.name].mean_square if scheme.method == "wanda" and target.name in inputs else None
        sample = setup.checked.take(target.title, scheme, weight, told, values, squares, count=2)
        setup.checked.settle(sample, runs)
        if scheme.method == "sparsegpt":
            setup.checked.note(target.title, wrong_error(weight, runs, one.weight_error))
            if target.name == first:
                yield from _passed_on(setup, sample, runs, inputs[first].hessian, scheme.damping)
        if scheme.method == "global_magnitude":
            threshold.add(weight, told)
        yield None
    if scheme.method == "global_magnitude" and threshold.weights:
        setup.checked.note("the model", threshold.wrong())


def wrong_error(dense: Tensor, runs: Tensor, told: float) -> str:
    """Whether |W - W'| / |W| of what runs is what the method measured when it was done; "" if so."""
    found = relative(runs.float() - dense.float(), dense.float())
    near = abs(found - told) <= max(1e-4, torch.finfo(runs.dtype).eps) * max(found, told, 1e-3)
    return "" if near else f"its weights differ from the dense ones by {found:.6g}, and {told:.6g} was measured"


class Threshold:
    """Magnitude with one threshold: counted over all matrices, from the masks that are told.

    Args:
        sparsity: of all weights together.
    """

    def __init__(self, sparsity: float) -> None:
        self._sparsity = sparsity
        self.weights = self._kept = 0
        self._gone, self._left = 0.0, float("inf")

    def add(self, weight: Tensor, mask: Tensor) -> None:
        """One matrix, (out, in), and its mask."""
        self.weights += mask.numel()
        self._kept += counted_bits(pack_mask(mask).numpy().tobytes())
        size = weight.float().abs()
        self._gone = max(self._gone, float(size.masked_fill(mask, 0.0).max()))
        self._left = min(self._left, float(size.masked_fill(~mask, float("inf")).min()))

    def wrong(self) -> str:
        """What is wrong with the choice; "" if nothing."""
        wrong = wrong_count(self._kept, self.weights, self._sparsity, "the model")
        if not wrong and self._gone > self._left:
            return f"a weight of {self._gone:.6g} went, and one of {self._left:.6g} stayed"
        return wrong


def _passed_on(setup: Setup, sample: Sample, runs: Tensor, hessian: Tensor | None, damping: float) -> Made[None]:
    """Sampled rows of the first matrix once more: what each removed weight passes on, in float64 and without blocks."""
    if hessian is None:
        return
    parts: Factor = yield from relay(factoring(hessian.double(), damping=damping, act_order=False), lambda _: None)
    width = hessian.shape[0]
    upper = torch.eye(width, dtype=torch.float64) if parts.upper is None else parts.upper.cpu()
    for place, row in enumerate(sample.rows):
        wanted = passed_on(sample.before[place], sample.kept[place], upper)
        found = runs[row].double().cpu()
        wrong = wrong_passed_on(sample.before[place], wanted, found, runs.dtype)
        setup.checked.note(f"{sample.title}, row {row}", wrong)
        yield None


def passed_on(row: Sequence[float], kept: Sequence[bool], upper: Tensor) -> Tensor:
    """SparseGPT's values of a row whose mask is known (Frantar and Alistarh 2023, equation 3), (in,) float64.

    Args:
        upper: (in, in) float64, U with H^-1 = U^T U.
    """
    work = torch.tensor(row, dtype=torch.float64)
    for column, keep in enumerate(kept):
        if not keep:
            work[column + 1 :] -= work[column] / upper[column, column] * upper[column, column + 1 :]
            work[column] = 0.0
    return work


def wrong_passed_on(before: Sequence[float], wanted: Tensor, found: Tensor, dtype: torch.dtype) -> str:
    """Whether a row is what the formula gives, up to rounding: a thousandth of what the method changed; "" if so."""
    change = float((wanted - torch.tensor(before, dtype=torch.float64)).norm())
    off = float((found - wanted).norm())
    limit = 1e-3 * change + torch.finfo(dtype).eps * float(wanted.norm())
    return "" if off <= limit else f"it is {off:.6g} from what SparseGPT's formula gives, and {limit:.6g} is rounding"
