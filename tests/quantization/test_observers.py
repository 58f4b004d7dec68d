"""Observers of ranges: by hand, beside numpy, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.errors import BadInput
from lab.quantization.observers import KEPT, RULES, MaxObserver, MovingAverageObserver, Observer, PercentileObserver


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ran(observer: Observer, *calls: Tensor) -> tuple[float, float]:
    for call in calls:
        observer.see(call)
    return observer.range()


def test_observers_by_hand() -> None:
    first, second = torch.tensor([-1.0, 2.0]), torch.tensor([[-3.0, 4.0]])
    assert ran(MaxObserver(), first, second) == (-3.0, 4.0)
    assert ran(MovingAverageObserver(0.25), first, second) == (-1.5, 2.5)
    assert ran(MovingAverageObserver(0.25), second, first) == (-2.5, 3.5)  # later calls count less
    x = torch.arange(1000).float()
    assert ran(PercentileObserver(99.0), x[500:], x[:500]) == (5.0, 994.0)
    assert ran(PercentileObserver(100.0), x) == (0.0, 999.0)


def test_percentiles_are_numpys() -> None:
    x = randn(40, 500)
    low, high = ran(PercentileObserver(99.0), *x.split(7))
    assert low == pytest.approx(float(np.percentile(x.numpy(), 0.5)), abs=0.01)
    assert high == pytest.approx(float(np.percentile(x.numpy(), 99.5)), abs=0.01)
    # the mistake: |x| at a percentile of one tail only
    assert high != pytest.approx(float(np.percentile(x.numpy(), 99.0)), abs=0.05)


def test_a_percentile_of_many_inputs_is_sampled() -> None:
    observer = PercentileObserver(98.0)
    calls = [randn(300, 576, seed=i) for i in range(4)]
    low, high = ran(observer, *calls)
    assert not observer.exact
    assert observer.values().numel() <= KEPT
    assert (low, high) == pytest.approx((-2.326, 2.326), abs=0.05)
    assert ran(PercentileObserver(98.0), *calls) == (low, high)  # its own seed


def test_observers_refuse_what_they_cannot_do() -> None:
    for rule in RULES:
        with pytest.raises(BadInput, match="no inputs"):
            rule.make().range()
    for percent in (50.0, 101.0, math.nan):
        with pytest.raises(BadInput, match="percentile"):
            PercentileObserver(percent)
    for share in (0.0, 1.5):
        with pytest.raises(BadInput, match="moving average"):
            MovingAverageObserver(share)
