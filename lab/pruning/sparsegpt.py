"""SparseGPT: weights go one column after another, and those that are left make up for it (Frantar, Alistarh 2023).

The share that goes is the same in each block of 128 columns, for a matrix or for each of its rows (`Pattern.scope`),
since a block's weights are only known once those before it are done. N:M patterns are chosen group by group.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.factor import DAMPING_MOST, Factor, factoring
from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.models.linear import check_weight
from lab.pruning.method import Pruned, Pruning
from lab.pruning.pattern import Pattern
from lab.pruning.sparsegpt_core import Removing
from lab.steps import relay

LEAST_BLOCK, MOST_BLOCK = 8, 1024


@dataclass(frozen=True)
class SparseGptPruned(Pruned):
    """A `Pruned` and what SparseGPT did.

    Attributes:
        damping: share of the mean of H's diagonal that was added to it in the end.
        dead: columns whose inputs were always 0; their weights went first.
        loss: SparseGPT's own estimate of the output's squared error: the mean over positions of |(W - W') x|^2, if H
            is of the same inputs, with the damping's share in it; NaN after a fallback.
        fell_back: whether it is magnitude inside each block after all.
    """

    damping: float = 0.0
    dead: int = 0
    loss: float = 0.0
    fell_back: bool = False


@dataclass(frozen=True)
class SparseGpt:
    """The method. See `lab.pruning.method.Method`.

    Attributes:
        pattern: how many go, and among which they are compared inside a block.
        damping: share of the mean of H's diagonal that is added to it, 0 to 1. Where H is not positive definite it
            is tripled up to 1; after that the smallest weights of each block go, and the notes say so.
        block: columns among which weights are compared, and whose errors wait before they reach those beyond.

    Raises:
        BadInput: damping or block outside their limits.
    """

    pattern: Pattern = field(default_factory=Pattern)
    damping: float = 0.01
    block: int = 128

    name: ClassVar[str] = "sparsegpt"
    label: ClassVar[str] = "SparseGPT"
    wants_inputs: ClassVar[bool] = True
    wants_hessian: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.damping <= DAMPING_MOST:
            raise BadInput(
                f"Damping is 0 to {DAMPING_MOST:g} of the diagonal's mean, not {shown(self.damping)}.",
                remedy="Choose 0.01, the usual value.",
            )
        whole = not isinstance(self.block, bool) and isinstance(self.block, int)
        if not whole or not LEAST_BLOCK <= self.block <= MOST_BLOCK or self.block % LEAST_BLOCK:
            raise BadInput(
                f"A block has {LEAST_BLOCK} to {MOST_BLOCK} columns, a multiple of {LEAST_BLOCK}, not "
                f"{shown(self.block)}.",
                remedy="Choose 128.",
            )

    def prune(self, weight: Tensor, inputs: LayerInputs | None = None) -> Pruning:
        """See `Method`. It pauses after each block of columns."""
        made = yield from self.prune_together([weight], inputs)
        return made[0]

    def prune_together(
        self, weights: Sequence[Tensor], inputs: LayerInputs | None
    ) -> Generator[float, None, list[SparseGptPruned]]:
        """Prune matrices that read the same inputs, (out, in) each, in one go: the same results as one by one.

        Raises:
            BadInput: inputs without a Hessian, or of another width; weights that are not finite; a width that an N:M
                pattern does not divide.
        """
        hessian = checked_hessian(weights, inputs)
        self.pattern.check(hessian.shape[0])
        parts: Factor = yield from relay(factoring(hessian, damping=self.damping, act_order=False), lambda _: 0.0)
        upper = parts.upper
        if upper is None:
            # With U = 1 nothing is passed on, and w^2 / U_ii^2 is in the order of |w|.
            upper = torch.eye(hessian.shape[0], device=hessian.device)
        heights = [len(weight) for weight in weights]
        work = torch.cat([weight.detach().t().float() for weight in weights], dim=1)
        dead = parts.dead if parts.upper is not None else torch.zeros_like(parts.dead)
        loop = Removing(self.pattern, heights, upper, dead, self.block)
        losses = yield from loop.solving(work, upper)
        notes = self._notes(parts)
        found = []
        for stop, height in zip(accumulate(heights), heights, strict=True):
            rows = slice(stop - height, stop)
            found.append(
                SparseGptPruned(
                    mask=(~loop.gone[:, rows]).t().contiguous(),
                    values=loop.values[:, rows].t().contiguous(),
                    notes=notes,
                    damping=parts.damping,
                    dead=int(parts.dead.sum()),
                    loss=float("nan") if parts.upper is None else float(losses[rows].sum()),
                    fell_back=parts.upper is None,
                )
            )
            yield 1.0
        return found

    def _notes(self, parts: Factor) -> tuple[str, ...]:
        if parts.upper is None:
            return (f"Pruned by magnitude in each block, not by SparseGPT: {why_not(parts)}.",)
        notes = []
        if parts.damping > self.damping:
            notes.append(
                f"The Hessian was not positive definite: damping raised from {self.damping:g} to {parts.damping:g}."
            )
        dead = int(parts.dead.sum())
        if dead:
            notes.append(f"{dead} of {len(parts.dead)} inputs were always 0; their weights were the first to go.")
        return tuple(notes)


def why_not(parts: Factor) -> str:
    """Why a Hessian has no factor."""
    if bool(parts.dead.all()):
        return "all inputs were always 0"
    if parts.damping < DAMPING_MOST:
        return "the inputs are not all finite"
    return f"the Hessian was not positive definite even with damping {parts.damping:g}"


def checked_hessian(weights: Sequence[Tensor], inputs: LayerInputs | None) -> Tensor:
    """The inputs' Hessian in fp32.

    Raises:
        BadInput: there is none, it does not fit the weights, or these are not finite.
    """
    if inputs is None or inputs.hessian is None:
        raise BadInput("SparseGPT needs the Hessian of a layer's inputs.", remedy="Calibrate on a text first.")
    hessian = inputs.hessian.float()
    for weight in weights:
        check_weight(weight, "The weight")
        if hessian.shape != (weight.shape[1], weight.shape[1]):
            raise BadInput(
                f"A Hessian of {tuple(hessian.shape)} does not fit a weight with {weight.shape[1]} inputs.",
                remedy="Calibrate this very layer.",
            )
    return hessian
