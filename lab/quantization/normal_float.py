"""The 16 levels of NF4: quantiles of the normal distribution, spread so that both -1, 0 and 1 are levels.

Eight positive levels are the quantiles at evenly spaced probabilities from c to 1/2 (the last, 0, left out), seven
negative ones likewise, and zero; all divided by the largest. c = 0.9677083 = (1 - 1/32 + 1 - 1/30) / 2
(Dettmers et al., "QLoRA", 2023, section 3).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

OUTERMOST = 0.9677083
"""The probability below the outermost level, before both ends are moved to -1 and 1."""

ZERO_CODE = 7
"""The code of 0."""


@lru_cache(maxsize=1)
def normal_float_levels() -> Tensor:
    """(16,) fp32, ascending, from -1 to 1."""
    with torch.inference_mode(False):  # kept for good: must be usable outside whatever mode asks first
        positive = torch.special.ndtri(torch.linspace(OUTERMOST, 0.5, 9, dtype=torch.float64)[:-1])
        negative = -torch.special.ndtri(torch.linspace(OUTERMOST, 0.5, 8, dtype=torch.float64)[:-1])
        levels = torch.cat((negative, torch.zeros(1, dtype=torch.float64), positive.flip(0)))
        return (levels / levels.abs().max()).float()


@lru_cache(maxsize=1)
def normal_float_borders() -> Tensor:
    """(15,) fp32: half way between two neighbours. A number on a border goes to the lower level."""
    levels = normal_float_levels()
    with torch.inference_mode(False):
        return (levels[:-1] + levels[1:]) / 2
