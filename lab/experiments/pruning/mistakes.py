"""Known mistakes of pruning, made on purpose: what then runs is not what the method gave."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.errors import BadInput
from lab.experiments.pruning.choices import BreakRun
from lab.experiments.pruning.settings import Scheme
from lab.models.linear import linear_module, out_in, set_weight
from lab.pruning.choose import lowest
from lab.pruning.pattern import Pattern
from lab.pruning.rows import Rows


def broken(mask: Tensor, values: Tensor, weight: Tensor, scheme: Scheme, mistake: BreakRun) -> tuple[Tensor, Tensor]:
    """A result with a mistake: the mask that is told, and the weights that run, (out, in) each.

    Args:
        mask, values: the method's. weight: the dense matrix.

    Raises:
        BadInput: N:M along the outputs where these are no whole groups.
    """
    weight = weight.to(values.dtype)
    match mistake:
        case "revived":
            # of each row the largest pruned weight: the one that was nearest to stay
            size = weight.abs().masked_fill(mask, -1.0)
            column = size.argmax(dim=1, keepdim=True)
            back = torch.zeros_like(mask).scatter_(1, column, value=True) & ~mask
            return mask, torch.where(back, weight, values)
        case "wrong_axis":
            n, m = scheme.n_of_m
            if not m or weight.shape[0] % m:
                raise BadInput(
                    f"{weight.shape[0]} rows are no groups of {m or 'N:M'}.", remedy="Choose a pattern that fits."
                )
            wrong = ~lowest(weight.float().abs().t().contiguous(), Pattern(n=n, m=m)).t().contiguous()
            return wrong, weight.masked_fill(~wrong, 0.0)
        case "one_too_many":
            size = weight.abs().masked_fill(~mask, torch.inf)
            column = size.argmin(dim=1, keepdim=True)
            fewer = mask & ~torch.zeros_like(mask).scatter_(1, column, value=True)
            return fewer, values.masked_fill(~fewer, 0.0)
        case "mask_of_neighbour":
            return mask, weight.masked_fill(~mask.roll(1, 0), 0.0)
        case _:
            return mask, values


def misalign(smaller: nn.Module, rows: Rows) -> None:
    """Where rows were removed: what reads the first layer's channels reads the neighbour of each."""
    down = linear_module(smaller, rows.layers[0].parts.down)
    set_weight(down, out_in(down).roll(1, 1))
