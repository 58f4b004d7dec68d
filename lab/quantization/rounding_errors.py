"""Errors e = w - w' of one matrix as numbers and as a histogram.

A histogram has `BINS` equal bins from -limit to limit with the limit a power of two. Then every rounding but that of
e + limit is exact, and the counts are those of `torch.histc(e, BINS, -limit, limit)` bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.models.linear import check_weight

BINS = 128
BLOCK = 2**18
"""Weights worked on at a time: their buffers (a few MiB) stay in the cache, and calls are few."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of one matrix, (rows, columns).

    Attributes:
        limit: the histogram reaches from -limit to limit.
        counts: (BINS,) int64, weights in each bin; each bin includes its left edge.
        beyond: weights whose error is in no bin.
        row_errors: (rows,) fp32, the largest |e| of each row.
        error_energy: the sum of e^2, added in fp64.
        signal_energy: the sum of w^2, likewise.
        weights: how many.
    """

    limit: float
    counts: Tensor
    beyond: int = 0
    row_errors: Tensor
    error_energy: float
    signal_energy: float
    weights: int

    @property
    def max_error(self) -> float:
        """The largest |e|."""
        return float(self.row_errors.max())

    @property
    def mean_square(self) -> float:
        """The mean of e^2 as an fp32 number: so many digits do not depend on the order of the sum."""
        return float(torch.tensor(self.error_energy / self.weights, dtype=torch.float32))

    @property
    def relative_error(self) -> float:
        """The root of the sum of e^2 over that of w^2; nan for a matrix of zeros."""
        return math.sqrt(self.error_energy / self.signal_energy) if self.signal_energy else math.nan

    @property
    def signal_to_noise_db(self) -> float:
        """10 log10 of the sum of w^2 over the sum of e^2, in dB; inf without an error, nan for a matrix of zeros."""
        return decibel(self.signal_energy, self.error_energy)

    @property
    def edges(self) -> tuple[float, ...]:
        """BINS + 1 numbers."""
        return tuple(self.limit * (2 * i / BINS - 1) for i in range(BINS + 1))


def errors_of(weight: Tensor, after: Tensor, limit: float | None = None) -> Errors:
    """The errors of any method: `after` is what `weight` became, both (rows, columns).

    Args:
        limit: of the histogram, a power of two; None: the smallest one above all errors.

    Raises:
        BadInput: shapes that differ, numbers that are not finite, or a limit that is no power of two.
    """
    check_weight(weight)
    check_weight(after, "The quantized matrix")
    if weight.shape != after.shape:
        raise BadInput(f"A matrix of {tuple(weight.shape)} cannot have become one of {tuple(after.shape)}.")
    rows, columns = weight.shape
    step = max(1, BLOCK // columns)
    runs = [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
    row_errors = torch.cat([(weight[run].float() - after[run].float()).abs_().amax(1) for run in runs])
    limit = power_above(float(row_errors.max())) if limit is None else checked_limit(limit)
    counts = torch.zeros(BINS, dtype=torch.int64, device=weight.device)
    noise = signal = 0.0
    for run in runs:
        before = weight[run].float()
        change = before - after[run].float()
        noise, signal = noise + energy(change), signal + energy(before)
        places = torch.add(torch.tensor(BINS / 2), change, alpha=BINS / 2 / limit).clamp_(-1, BINS)
        counts += torch.bincount(places.floor_().to(torch.int16).view(-1).add_(1), minlength=BINS + 2)[1:-1]
    return Errors(
        limit=limit,
        counts=counts,
        beyond=weight.numel() - int(counts.sum()),
        row_errors=row_errors,
        error_energy=noise,
        signal_energy=signal,
        weights=weight.numel(),
    )


def energy(values: Tensor) -> float:
    """The sum of squares, in fp64."""
    wide = values.double().view(-1)
    return float(torch.dot(wide, wide))


def decibel(signal: float, noise: float) -> float:
    """10 log10(signal / noise); inf without noise, -inf without signal, nan with neither."""
    if noise > 0:
        return 10 * math.log10(signal / noise) if signal > 0 else -math.inf
    return math.inf if signal > 0 else math.nan


def power_above(value: float) -> float:
    """The smallest power of two above `value`, at least 2^-100."""
    return math.ldexp(1.0, math.frexp(max(value, 2.0**-101))[1])


def checked_limit(limit: float) -> float:
    """`limit` if it can be a histogram's.

    Raises:
        BadInput: it is no power of two.
    """
    if not (0 < limit < math.inf and math.frexp(limit)[0] == 0.5):
        raise BadInput(f"A histogram's limit is a power of two, not {limit!r}.", remedy="Take `limit_of` the matrix.")
    return limit
