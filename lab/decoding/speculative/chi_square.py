"""The chi-square test and what goes with it, without scipy: p-value, critical value, power, and the distance that
chance alone makes.

Tests hold all of it against scipy.
"""

from __future__ import annotations

from functools import lru_cache
from math import erfc, inf, sqrt

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def p_value(statistic: float, degrees: int) -> float:
    """P(chi-square with so many degrees of freedom >= statistic): the upper regularised incomplete gamma function
    Q(degrees / 2, statistic / 2). 1 without degrees of freedom. Below about 1e-300 it is 0."""
    if degrees < 1 or statistic <= 0.0:
        return 1.0
    if statistic == inf:
        return 0.0
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


@lru_cache(maxsize=4096)
def critical_value(degrees: int, at: float) -> float:
    """The statistic whose p-value is `at`, by bisection; infinite without degrees of freedom."""
    if degrees < 1:
        return inf
    low, high = 0.0, float(degrees) + 10.0
    while p_value(high, degrees) > at:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle, degrees) > at else (low, middle)
    return high


def statistic_of(observed: Floats, probability: Floats) -> float:
    """Pearson's: sum of (observed - n p)^2 / (n p) over cells of positive probability."""
    expected = observed.sum() * probability
    return float(((observed - expected) ** 2 / expected).sum())


def power(probability: Floats, truth: Floats, runs: int, at: float) -> float:
    """P(p-value < at) if the draws came from `truth` and are tested against `probability`.

    A normal approximation of Pearson's statistic X: with r = truth / probability and D the multinomial's deviation,

        E X = sum r (1 - truth) + runs sum (truth - probability)^2 / probability     (exact)
        Var X = 2 tr((A S)^2) + 4 b' S b                                             (D taken as normal)

    with S the covariance of D, A = diag(1 / (runs probability)) and b = r - 1. Where the power is neither near 0 nor
    near 1 it is good to some hundredths (tests compare it with simulated trials).
    """
    degrees = len(probability) - 1
    if degrees < 1 or runs < 1:
        return 0.0
    r = truth / probability
    mean = float((r * (1 - truth)).sum() + runs * ((truth - probability) ** 2 / probability).sum())
    quadratic = float((r**2 * (1 - 2 * truth)).sum() + (r * truth).sum() ** 2)
    linear = runs * float((truth * (r - 1) ** 2).sum() - (truth * (r - 1)).sum() ** 2)
    deviation = sqrt(max(2 * quadratic + 4 * linear, 1e-12))
    return 0.5 * erfc((critical_value(degrees, at) - mean) / deviation / sqrt(2))


def variation(observed: Floats, probability: Floats) -> float:
    """Total variation between what was observed and p: half the sum of |observed / n - p|."""
    return float(np.abs(observed / observed.sum() - probability).sum()) / 2


def expected_variation(probability: Floats, runs: int) -> float:
    """What `variation` is on average if the draws do follow p: half the sum of E|X - n p| / n, X binomial.

    De Moivre's closed form: E|X - n p| = 2 m C(n, m) p^m (1 - p)^(n - m + 1) with m = floor(n p) + 1.
    """
    if runs < 1:
        return 0.0
    p = torch.from_numpy(probability[(probability > 0) & (probability < 1)])
    n = torch.tensor(float(runs), dtype=torch.float64)
    m = torch.floor(n * p) + 1
    choose = torch.lgamma(n + 1) - torch.lgamma(m + 1) - torch.lgamma(n - m + 1)
    deviation = 2 * m * torch.exp(choose + m * p.log() + (n - m + 1) * torch.log1p(-p))
    return float(torch.where(m <= n, deviation, 2 * n * p * (1 - p)).sum()) / (2 * runs)
