"""One matrix pruned one way, and what there is to say of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.events import ArrayData
from lab.events.pruning import MaskMade, PruneErrors
from lab.experiments.compared.progress import Made, progress
from lab.experiments.compared.targets import Target, relative
from lab.experiments.pruning.choices import BreakRun
from lab.experiments.pruning.mistakes import broken
from lab.experiments.pruning.settings import Scheme
from lab.pruning.mask_bits import kept_per_row, pack_mask
from lab.pruning.method import Method, Pruned
from lab.pruning.nm import check_nm


@dataclass
class Studied:
    """A matrix as one scheme has it.

    Attributes:
        made: the method's result. mask, runs: what is told and what runs, a deliberate mistake in them; runs fp32.
        ms: of the method's own slices.
    """

    target: Target
    scheme: Scheme
    made: Pruned
    mask: Tensor
    runs: Tensor
    ms: float

    @property
    def weight(self) -> Tensor:
        """The dense matrix, fp32."""
        return self.target.weight.float()

    @classmethod
    def of_mask(cls, target: Target, scheme: Scheme, mask: Tensor, mistake: BreakRun) -> Studied:
        """By a mask that was found elsewhere; weights that are kept stay as they are."""
        made = Pruned(mask, target.weight.float().masked_fill(~mask, 0.0))
        told, runs = broken(made.mask, made.values, target.weight, scheme, mistake)
        return cls(target, scheme, made, told, runs, 0.0)


def studying(
    target: Target, scheme: Scheme, method: Method, inputs: LayerInputs | None, mistake: BreakRun, stage: str
) -> Made[Studied]:
    """Prune one matrix, pausing as the method does."""
    took, pruning = 0.0, method.prune(target.weight, inputs)
    while True:
        began = perf_counter()
        try:
            share = next(pruning)
        except StopIteration as end:
            made: Pruned = end.value
            took += perf_counter() - began
            break
        took += perf_counter() - began
        yield progress(stage, share, 1)
    mask, runs = broken(made.mask, made.values, target.weight, scheme, mistake)
    yield None
    return Studied(target, scheme, made, mask, runs, took * 1e3)


def mask_made(studied: Studied, *, chosen: bool) -> MaskMade:
    """Its mask."""
    target, mask, (n, m) = studied.target, studied.mask, studied.scheme.n_of_m
    bits = pack_mask(mask)
    rows = kept_per_row(bits)
    return MaskMade(
        layer=target.layer,
        projection=target.projection,
        module=target.name,
        rows=mask.shape[0],
        columns=mask.shape[1],
        setting=studied.scheme.setting,
        bits=ArrayData.of(bits.numpy(), "uint8"),
        kept=int(rows.sum()),
        row_kept=ArrayData.of(rows.numpy(), "int32"),
        offending=check_nm(mask, n, m).broken_count if m else 0,
        ms=studied.ms,
        chosen=chosen,
        notes=studied.made.notes,
    )


def prune_errors(
    studied: Studied, calibration: LayerInputs, held_out: LayerInputs, magnitude: float | None
) -> PruneErrors:
    """Its errors.

    Args:
        magnitude: the calibration error of magnitude with the same pattern; None for magnitude itself.
    """
    target, weight = studied.target, studied.weight
    change = studied.runs - weight
    on_calibration = error_of_outputs(change, weight, calibration)
    return PruneErrors(
        layer=target.layer,
        projection=target.projection,
        setting=studied.scheme.setting,
        weight_error=relative(change, weight),
        calibration_error=on_calibration,
        heldout_error=error_of_outputs(change, weight, held_out),
        to_magnitude=on_calibration / magnitude if magnitude else None,
        sparsity=1 - float(studied.mask.sum()) / studied.mask.numel(),
        ms=studied.ms,
    )


def error_of_outputs(change: Tensor, weight: Tensor, inputs: LayerInputs) -> float:
    """|X change^T| / |X W^T|: over all positions by their Hessian where it is there, else over the kept ones."""
    if inputs.hessian is None:
        rows = inputs.rows.float()
        return relative(rows @ change.t(), rows @ weight.t())
    sums = [float(((one @ inputs.hessian) * one).sum(dtype=torch.float64)) for one in (change, weight)]
    return math.sqrt(max(sums[0], 0.0) / sums[1]) if sums[1] > 0 else math.inf
