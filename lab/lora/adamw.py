"""AdamW over one flat tensor, and the learning rate of each step.

Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization": m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
w = w - rate (decay w + m' / (sqrt(v') + eps)) with m', v' corrected for their start at zero. The sums are those of
`torch.optim.AdamW`; one tensor for all factors makes a step a dozen operations rather than a dozen for each of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class AdamW:
    """The optimizer's state.

    Args:
        values: (n,) fp32, changed in place.
    """

    def __init__(self, values: Tensor, *, weight_decay: float = 0.0) -> None:
        self._values = values
        self._decay = weight_decay
        self._mean = torch.zeros_like(values)
        self._square = torch.zeros_like(values)
        self._steps = 0

    def step(self, gradient: Tensor, rate: float) -> None:
        """One step down `gradient`, (n,) fp32. Must run without gradients."""
        self._steps += 1
        first, second = BETAS
        if self._decay:
            self._values.mul_(1 - rate * self._decay)
        self._mean.lerp_(gradient, 1 - first)
        self._square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        root = self._square.sqrt().div_(math.sqrt(1 - second**self._steps)).add_(EPSILON)
        self._values.addcdiv_(self._mean, root, value=-rate / (1 - first**self._steps))


def rate_at(step: int, *, peak: float, warmup: int, steps: int) -> float:
    """The learning rate of step 1 to `steps`: a line up to `peak` over `warmup` steps, then one down towards 0."""
    if step <= warmup:
        return peak * step / warmup
    return peak * (steps - step + 1) / (steps - warmup)
