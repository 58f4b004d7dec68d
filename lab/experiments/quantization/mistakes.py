"""Known mistakes of quantization, made on purpose: what then runs is not what the method gave."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lab.experiments.quantization.choices import BreakRun
from lab.quantization.affine import Affine, AffineWeight, encode_groups, grouped, ungrouped


def broken(made: AffineWeight, weight: Tensor, mistake: BreakRun) -> tuple[AffineWeight, Tensor]:
    """A result with a mistake: what the file would hold, and the weights that run, (out, in) fp32.

    Args:
        weight: the dense weights, (out, in).
    """
    match mistake:
        case "neighbour_scales":
            scale = made.affine.scale
            along = 1 if scale.shape[1] > 1 else 0
            return made, replace(made, affine=Affine(scale.roll(1, along), made.affine.offset)).dequantize()
        case "codes_off_by_one":
            return made, replace(made, codes=made.codes + 1).dequantize()
        case "nibbles_swapped":
            pairs = made.codes[:, : made.codes.shape[1] // 2 * 2]
            swapped = pairs.reshape(len(pairs), -1, 2).flip(2).reshape(pairs.shape)
            codes = torch.cat((swapped, made.codes[:, pairs.shape[1] :]), dim=1)
            return made, replace(made, codes=codes).dequantize()
        case "missing_abs":
            high = grouped(weight, made.grid).amax(dim=-1).clamp_(min=0.0)
            step = high / made.grid.highest if made.grid.kind == "absmax" else 2 * high / (2**made.grid.bits - 1)
            affine = Affine(step.half().float())
            codes = encode_groups(grouped(weight, made.grid), affine, made.grid)
            wrong = replace(made, affine=affine, codes=ungrouped(codes, made.shape).to(torch.int16))
            return wrong, wrong.dequantize()
        case _:
            return made, made.dequantize()
