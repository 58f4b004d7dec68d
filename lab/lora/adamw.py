"""AdamW over one flat tensor, and the learning rate of each step.

Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization": m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
w = w - rate (decay w + m' / (sqrt(v') + eps)) with m', v' corrected for their start at zero. The sums are those of
torch's one pass over weight, gradient and both means; its optimizer class would import a compiler for seconds.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.adamw import adamw

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class AdamW:
    """The optimizer's state.

    Args:
        values: fp32, changed in place.
    """

    def __init__(self, values: Tensor, *, weight_decay: float = 0.0) -> None:
        self._values = values
        self._decay = weight_decay
        self._mean = torch.zeros_like(values)
        self._square = torch.zeros_like(values)
        self._steps = torch.zeros((), device=values.device)

    def step(self, gradient: Tensor, rate: float) -> None:
        """One step down `gradient`, fp32, of the same shape. Must run without gradients."""
        first, second = BETAS
        adamw(
            [self._values],
            [gradient],
            [self._mean],
            [self._square],
            [],
            [self._steps],
            fused=True,
            amsgrad=False,
            beta1=first,
            beta2=second,
            lr=rate,
            weight_decay=self._decay,
            eps=EPSILON,
            maximize=False,
        )


def rate_at(step: int, *, peak: float, warmup: int, steps: int) -> float:
    """The learning rate of step 1 to `steps`: a line up to `peak` over `warmup` steps, then one down towards 0."""
    if step <= warmup:
        return peak * step / warmup
    return peak * (steps - step + 1) / (steps - warmup)
