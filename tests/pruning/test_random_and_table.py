"""The random baseline, and what every method of the table must do."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, NotFound
from lab.pruning.methods import METHODS, Settings, make_method
from lab.pruning.nm import check_nm
from lab.pruning.pattern import N_OF_M, Pattern
from lab.pruning.random import Random
from lab.steps import finished

PATTERNS = (Pattern(0.0), Pattern(0.3), Pattern(0.5, "row"), Pattern(1.0), *(Pattern(n=n, m=m) for n, m in N_OF_M))


def layer(rows: int = 24, width: int = 256) -> tuple[Tensor, LayerInputs]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(500, width, generator=g) * torch.rand(width, generator=g).mul(2).exp()
    x = x + 0.5 * x.roll(1, dims=1)
    return torch.randn(rows, width, generator=g), LayerInputs(
        500, 2 * x.t() @ x / 500, x.abs().mean(dim=0), x.square().mean(dim=0), x
    )


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: f"{p.label} {p.scope}")
@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract(name: str, pattern: Pattern) -> None:
    weight, inputs = layer()
    before = weight.clone()
    weight = torch.nn.Parameter(weight)  # as a model has it
    method = make_method(name, Settings(pattern))
    assert method.name == name
    assert method.label == METHODS[name].label
    assert method.wants_inputs == METHODS[name].calibrated
    found = finished(method.prune(weight, inputs))
    assert torch.equal(weight, before)
    assert found.mask.dtype == torch.bool
    assert found.values.dtype == torch.float32
    assert not found.values.requires_grad
    assert not found.values[~found.mask].any()
    assert torch.equal(found.values[found.mask], weight[found.mask]) or METHODS[name].updates
    gone = (~found.mask).sum(dim=1)
    if pattern.m:
        report = check_nm(found.mask, pattern.n, pattern.m)
        assert report.valid
        assert report.fewer == 0
    elif method.pattern.scope == "row":
        assert int(gone.sum()) == 24 * pattern.pruned_of(256)
    else:
        assert int(gone.sum()) == pattern.pruned_of(weight.numel())
    if pattern.sparsity == 0:
        assert torch.equal(found.values, weight)


@pytest.mark.parametrize("pattern", [Pattern(0.5, "row"), Pattern(n=2, m=4)], ids=lambda p: p.label)
def test_each_method_beats_the_one_before(pattern: Pattern) -> None:
    weight, inputs = layer()
    errors = []
    for name in METHODS:  # random, magnitude, Wanda, SparseGPT
        made = finished(make_method(name, Settings(pattern)).prune(weight, inputs))
        errors.append(float((inputs.rows @ (made.values - weight).t()).norm()))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1.5 * errors[1]


def test_an_unknown_method_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(NotFound, match="'magic'") as caught:
        make_method("magic")
    assert all(name in caught.value.remedy for name in METHODS)


def test_the_same_seed_prunes_the_same() -> None:
    weight, _ = layer()
    masks = [finished(Random(Pattern(0.5), seed).prune(weight)).mask for seed in (3, 3, 4)]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert torch.equal(finished(Random(Pattern(0.5), 3).prune(weight.bfloat16())).mask, masks[0])
    state = torch.get_rng_state()
    finished(Random().prune(weight))
    assert torch.equal(torch.get_rng_state(), state)  # the process's own random numbers are not touched


@pytest.mark.parametrize(
    "pattern", [Pattern(0.5), Pattern(0.5, "row"), Pattern(n=2, m=4)], ids=lambda p: p.label + p.scope
)
def test_every_place_is_as_likely(pattern: Pattern) -> None:
    weight = torch.linspace(0, 1, 128).view(4, 32)  # of the magnitudes nothing may be seen
    counts = sum(finished(Random(pattern, seed).prune(weight)).mask.long() for seed in range(400))
    assert isinstance(counts, Tensor)
    assert chisquare(counts.flatten().numpy()).pvalue > 1e-3
    biased = counts + (weight > 0.5).long() * 40  # the mutation
    assert chisquare(biased.flatten().numpy()).pvalue < 1e-3


def test_bad_seeds_are_refused() -> None:
    for seed in (-1, 2**63, 0.5, True):
        with pytest.raises(BadInput, match="A seed is"):
            Random(seed=seed)  # type: ignore[arg-type]
    assert finished(Random(seed=2**63 - 1).prune(torch.ones(2, 2))).kept == 2
