"""Round to nearest: each weight becomes the closest level of its group.

Symmetric absmax is LLM.int8's (Dettmers et al. 2022) row by row; float minimum is GGUF's Q4_1. What the other methods
are measured against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.models.linear import check_weight
from lab.quantization.affine import (
    Affine,
    AffineWeight,
    affine_of_range,
    encode_groups,
    grouped,
    smallest_scale,
    ungrouped,
)
from lab.quantization.clipping import Clip, clipped_ranges, pieces
from lab.quantization.grid import Grid
from lab.quantization.method import Quantizing


@dataclass(frozen=True)
class Nearest:
    """Round to nearest on a grid.

    Attributes:
        grid: levels and groups.
        clip: how much of each group's range the levels cover.
    """

    grid: Grid
    clip: Clip = Clip.none

    name: ClassVar[str] = "nearest"
    label: ClassVar[str] = "Round to nearest"
    wants_hessian: ClassVar[bool] = False

    @property
    def wants_inputs(self) -> bool:
        """Only where clipping looks at the layer's output."""
        return self.clip.how == "output_error"

    def quantize(self, weight: Tensor, inputs: LayerInputs | None = None) -> Quantizing:
        """Quantize `weight`, (out, in); see `Method`.

        Raises:
            BadInput: a weight that is not finite, a group size that does not fit, scales beyond their format, or
                inputs that are missing.
        """
        check_weight(weight)
        weight = weight.detach()
        before = 0.9 if self.clip.searches else 0.5  # of the time
        ranges = clipped_ranges(weight, self.grid, self.clip, inputs)
        while True:
            try:
                yield before * next(ranges)
            except StopIteration as end:
                low, high = end.value
                break
        affine = affine_of_range(low, high, self.grid)
        yield before
        codes = torch.empty(weight.shape, dtype=torch.int16, device=weight.device)
        for piece in pieces(weight):
            rows = weight[piece]
            found = encode_groups(grouped(rows, self.grid), affine.part(piece), self.grid)
            codes[piece] = ungrouped(found, (rows.shape[0], rows.shape[1]))
            yield before + (1 - before) * piece.stop / weight.shape[0]
        return AffineWeight(self.grid, (weight.shape[0], weight.shape[1]), codes, affine, notes=self._notes(affine))

    def _notes(self, affine: Affine) -> tuple[str, ...]:
        groups = affine.scale.numel()
        still = int((affine.scale == 0).sum())
        raised = int((affine.scale == smallest_scale(self.grid)).sum())
        notes = []
        if still:
            notes.append(f"{still:,} of {groups:,} groups hold one value only and are kept at it.")
        if raised:
            notes.append(
                f"{raised:,} of {groups:,} groups are so small that their scale is the smallest normal number of "
                f"{self.grid.scale_format}."
            )
        return tuple(notes)
