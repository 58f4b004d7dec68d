"""The replay of SparseGPT gives the fast way's weights, column by column and without blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lab.calibration.hessian import Accumulator
from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput
from lab.pruning.pattern import Pattern
from lab.pruning.sparsegpt import SparseGpt
from lab.pruning.sparsegpt_replay import Replay, replaying
from lab.steps import finished

PATTERNS = [Pattern(0.5), Pattern(0.3, "row"), Pattern(n=2, m=4), Pattern(n=1, m=4)]


def layer(rows: int = 24, columns: int = 160) -> tuple[Tensor, LayerInputs]:
    dice = torch.Generator().manual_seed(3)
    mixed = torch.randn(columns, columns, generator=dice)
    x = torch.randn(600, columns, generator=dice) @ mixed
    sums = Accumulator(hessian=True, expected=600, keep=0)
    sums.add(x)
    return torch.randn(rows, columns, generator=dice), sums.result(columns, torch.device("cpu"))


def replayed(pattern: Pattern, start: int = 40) -> tuple[Replay, Tensor, Tensor]:
    weight, inputs = layer()
    method = SparseGpt(pattern, block=32)
    made = finished(method.prune(weight, inputs))
    return finished(replaying(weight, inputs, method, [2, 7, 23], start=start, count=50)), made.values, weight


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: f"{p.label} {p.scope}")
def test_it_ends_at_the_weights_of_the_fast_way(pattern: Pattern) -> None:
    found, values, weight = replayed(pattern)
    assert torch.allclose(found.whole, values[[2, 7, 23]], rtol=1e-4, atol=1e-4)
    assert torch.equal(found.whole == 0, values[[2, 7, 23]] == 0)
    # the mutation: nothing passed on is another result
    assert not torch.allclose(weight[[2, 7, 23]] * (found.whole != 0), values[[2, 7, 23]], rtol=1e-4, atol=1e-4)


def test_its_frames_explain_each_weight() -> None:
    found, _, weight = replayed(PATTERNS[0], start=0)
    absorbed = -(found.error @ found.spread)
    assert torch.allclose(found.original + absorbed, found.at_turn, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.values, found.at_turn - found.error)
    assert torch.equal(found.error != 0, ~found.mask)
    assert torch.equal(found.original, weight[[2, 7, 23], :50])
    assert bool((found.final_loss < found.magnitude_loss).all())


@pytest.mark.parametrize(
    ("rows", "start", "count"), [([], 0, 8), ([24], 0, 8), ([0], 160, 8), ([0], 0, 0), ([0], 0, 257)]
)
def test_what_cannot_be_shown_is_refused(rows: list[int], start: int, count: int) -> None:
    weight, inputs = layer()
    with pytest.raises(BadInput, match="A replay shows"):
        finished(replaying(weight, inputs, SparseGpt(PATTERNS[0]), rows, start=start, count=count))
