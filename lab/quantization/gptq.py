"""GPTQ: columns are rounded one after another, and those that are left make up for the error (Frantar et al. 2022).

Groups and the order of columns:

- `act_order`: columns with the largest inputs first (the diagonal of H, descending).
- `static_groups`: scales are taken before anything is rounded, from neighbouring columns as they lie, and stay valid
  in any order. Without, a group's scale is taken from its weights as they stand when its first column comes, errors
  of earlier columns in them; with `act_order` its columns are then no neighbours, and an index of groups is stored.
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
from lab.quantization.affine import Affine, AffineWeight, affine_of, encode_groups, grouped, ungrouped
from lab.quantization.gptq_core import ColumnParameters, Columns, solving
from lab.quantization.grid import Grid
from lab.quantization.method import Quantizing

LEAST_BLOCK, MOST_BLOCK = 1, 1024


@dataclass(frozen=True)
class GptqWeight(AffineWeight):
    """An `AffineWeight` and what GPTQ did.

    Attributes:
        damping: share of the mean of H's diagonal that was added to it in the end.
        dead: columns whose inputs were always 0; their weights were set to 0 first.
        loss: GPTQ's own estimate of the output's squared error: the mean over positions of |(W - W') x|^2, if H is
            of the same inputs; NaN after a fallback.
        fell_back: whether it is plain rounding to the nearest after all.
    """

    damping: float = 0.0
    dead: int = 0
    loss: float = 0.0
    fell_back: bool = False


@dataclass(frozen=True)
class Gptq:
    """The method. See `lab.quantization.method.Method`.

    Attributes:
        grid: levels and groups.
        act_order: take columns by the size of their inputs. Without it a small model's perplexity at 4 bits can be
            worse than after rounding to the nearest, though every layer's output is better.
        static_groups: see the module.
        damping: share of the mean of H's diagonal that is added to it, 0 to 1. Where H is not positive definite it
            is tripled up to 1; after that the matrix is rounded to the nearest, and the notes say so.
        block: columns whose errors wait before they reach those beyond; it changes the speed alone.

    Raises:
        BadInput: damping or block outside their limits.
    """

    grid: Grid = field(default_factory=Grid)
    act_order: bool = True
    static_groups: bool = True
    damping: float = 0.01
    block: int = 128

    name: ClassVar[str] = "gptq"
    label: ClassVar[str] = "GPTQ"
    wants_inputs: ClassVar[bool] = True
    wants_hessian: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.damping <= DAMPING_MOST:
            raise BadInput(
                f"Damping is 0 to {DAMPING_MOST:g} of the diagonal's mean, not {shown(self.damping)}.",
                remedy="Choose 0.01, the usual value.",
            )
        if isinstance(self.block, bool) or not LEAST_BLOCK <= self.block <= MOST_BLOCK:
            raise BadInput(
                f"A block has {LEAST_BLOCK} to {MOST_BLOCK} columns, not {shown(self.block)}.", remedy="Choose 128."
            )

    def quantize(self, weight: Tensor, inputs: LayerInputs | None = None) -> Quantizing:
        """See `Method`. It pauses after each block of columns."""
        made = yield from self.quantize_together([weight], inputs)
        return made[0]

    def quantize_together(
        self, weights: Sequence[Tensor], inputs: LayerInputs | None
    ) -> Generator[float, None, list[GptqWeight]]:
        """Quantize matrices that read the same inputs, (out, in) each, in one go: the same results as one by one.

        Raises:
            BadInput: inputs without a Hessian, or of another width; weights that are not finite.
        """
        hessian = self._check(weights, inputs)
        factors = factoring(hessian, damping=self.damping, act_order=self.act_order)
        while True:
            try:
                next(factors)
            except StopIteration as end:
                parts: Factor = end.value
                break
            yield 0.0
        if parts.upper is None:
            return [self._nearest(weight, parts) for weight in weights]
        dense = [weight.detach().float().masked_fill(parts.dead, 0.0) for weight in weights]
        heights = [len(weight) for weight in dense]
        parameters = ColumnParameters(self.grid, self.grid.groups(hessian.shape[0]), sum(heights), hessian.device)
        fixed = self._fixed(dense, parameters)
        plan = self._plan(parts.columns, fixed=fixed is not None)
        work = torch.cat([weight.t()[parts.columns] for weight in dense], dim=1)
        codes, losses = yield from solving(work, parts.upper, self.grid, plan, parameters, block=self.block)
        back = torch.empty_like(codes)
        back[parts.columns] = codes  # the permutation's inverse
        order = None
        if plan.starts and self.act_order and self.grid.share not in ("row", "tensor"):
            order = torch.empty_like(parts.columns)
            order[parts.columns] = torch.tensor(plan.group, device=order.device)
        affines = fixed if fixed is not None else split(parameters.affine(), heights)
        notes = self._notes(parts)
        return [
            GptqWeight(
                grid=self.grid,
                shape=(height, hessian.shape[0]),
                codes=part.t().contiguous(),
                affine=affine,
                order=order,
                notes=notes,
                damping=parts.damping,
                dead=int(parts.dead.sum()),
                loss=float(loss.sum()),
            )
            for height, part, affine, loss in zip(
                heights, torch.split(back, heights, dim=1), affines, torch.split(losses, heights), strict=True
            )
        ]

    def _check(self, weights: Sequence[Tensor], inputs: LayerInputs | None) -> Tensor:
        if inputs is None or inputs.hessian is None:
            raise BadInput("GPTQ needs the Hessian of a layer's inputs.", remedy="Calibrate on a text first.")
        hessian = inputs.hessian.float()
        for weight in weights:
            check_weight(weight, "The weight")
            if hessian.shape != (weight.shape[1], weight.shape[1]):
                raise BadInput(
                    f"A Hessian of {tuple(hessian.shape)} does not fit a weight with {weight.shape[1]} inputs.",
                    remedy="Calibrate this very layer.",
                )
            self.grid.group_size(weight.shape[1])
        return hessian

    def _fixed(self, dense: Sequence[Tensor], parameters: ColumnParameters) -> list[Affine] | None:
        """Scales that are taken before anything is rounded; None if each group's are taken when it starts."""
        if not self.static_groups and self.grid.share != "tensor":
            return None
        affines = [affine_of(weight, self.grid) for weight in dense]
        wide = [
            _expanded(affine, len(weight)) if self.grid.share == "tensor" else affine
            for affine, weight in zip(affines, dense, strict=True)
        ]
        offsets = [affine.offset for affine in wide if affine.offset is not None]
        parameters.set_all(Affine(torch.cat([a.scale for a in wide]), torch.cat(offsets) if offsets else None))
        return affines

    def _plan(self, columns: Tensor, *, fixed: bool) -> Columns:
        size, width = self.grid.group_size(len(columns)), len(columns)
        if fixed:
            return Columns((columns // size).tolist(), {}, size)
        return Columns([i // size for i in range(width)], {i: i // size for i in range(0, width, size)}, size)

    def _notes(self, parts: Factor) -> tuple[str, ...]:
        notes = []
        if parts.damping > self.damping:
            notes.append(
                f"The Hessian was not positive definite: damping raised from {self.damping:g} to {parts.damping:g}."
            )
        dead = int(parts.dead.sum())
        if dead:
            notes.append(f"{dead} of {len(parts.dead)} inputs were always 0; their weights were set to 0.")
        return tuple(notes)

    def _nearest(self, weight: Tensor, parts: Factor) -> GptqWeight:
        """Round to nearest, where GPTQ cannot be done, and why."""
        if bool(parts.dead.all()):
            why = "all inputs were always 0"
        elif parts.damping < DAMPING_MOST:
            why = "the inputs are not all finite"
        else:
            why = f"the Hessian was not positive definite even with damping {parts.damping:g}"
        wide = weight.detach().float()
        affine = affine_of(wide, self.grid)
        shape = (wide.shape[0], wide.shape[1])
        codes = ungrouped(encode_groups(grouped(wide, self.grid), affine, self.grid), shape)
        return GptqWeight(
            grid=self.grid,
            shape=shape,
            codes=codes.to(torch.int16),
            affine=affine,
            notes=(f"Rounded to nearest, not GPTQ: {why}.",),
            damping=parts.damping,
            dead=int(parts.dead.sum()),
            loss=float("nan"),
            fell_back=True,
        )


def split(affine: Affine, heights: Sequence[int]) -> list[Affine]:
    """The rows of each matrix."""
    ends = list(accumulate(heights))
    return [affine.part(slice(end - height, end)) for height, end in zip(heights, ends, strict=True)]


def _expanded(affine: Affine, rows: int) -> Affine:
    return Affine(affine.scale.expand(rows, 1), None if affine.offset is None else affine.offset.expand(rows, 1))
