"""SparseGPT against magnitude, exact counts, the closed form of its update, and its own slow replay."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from pruning_layers import inputs_of, layer, output_square
from torch import Tensor

from lab.calibration import factor
from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput
from lab.pruning.magnitude import Magnitude
from lab.pruning.nm import check_nm
from lab.pruning.pattern import N_OF_M, Pattern
from lab.pruning.sparsegpt import SparseGpt, SparseGptPruned
from lab.pruning.wanda import Wanda
from lab.steps import finished

PATTERNS = (Pattern(0.5), Pattern(0.3, "row"), *(Pattern(n=n, m=m) for n, m in N_OF_M))


def by_label(pattern: Pattern) -> str:
    return f"{pattern.label} {pattern.scope}"


def sparsegpt(weight: Tensor, inputs: LayerInputs, pattern: Pattern, block: int = 128) -> SparseGptPruned:
    made = finished(SparseGpt(pattern, block=block).prune(weight, inputs))
    assert isinstance(made, SparseGptPruned)
    return made


@pytest.mark.parametrize("pattern", PATTERNS, ids=by_label)
def test_it_beats_wanda_and_magnitude(pattern: Pattern) -> None:
    weight, inputs = layer(24, 192)
    before = weight.clone()
    made = sparsegpt(weight, inputs, pattern)
    assert torch.equal(weight, before)
    rows = pattern if pattern.m else replace(pattern, scope="row")
    errors = [output_square(weight, made.values, inputs)]
    for other in (Wanda(rows), Magnitude(pattern)):
        errors.append(output_square(weight, finished(other.prune(weight, inputs)).values, inputs))
    assert errors == sorted(errors)
    assert errors[0] < 0.6 * errors[1]
    # the loss is the output's error, with the damping's share in it
    assert inputs.hessian is not None
    damped = 0.01 * float(inputs.hessian.diagonal().mean()) * float((made.values - weight).square().sum()) / 2
    assert made.loss == pytest.approx(errors[0] + damped, rel=2e-3)
    assert made.notes == ()
    assert made.damping == 0.01
    # the mutation: the same mask without what is passed on
    assert output_square(weight, weight * made.mask, inputs) > 1.3 * errors[0]


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.37, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(7, 200), (1, 9), (5, 1), (30, 130)])
def test_counts_are_exact(shape: tuple[int, int], sparsity: float) -> None:
    weight, inputs = layer(*shape)
    for ties in (False, True):
        given = weight.sign() if ties else weight
        whole = sparsegpt(given, inputs, Pattern(sparsity))
        assert whole.mask.numel() - whole.kept == round(sparsity * weight.numel())
        rows = sparsegpt(given, inputs, Pattern(sparsity, "row"))
        assert ((~rows.mask).sum(dim=1) == round(sparsity * shape[1])).all()
        for made in (whole, rows):
            assert not made.values[~made.mask].any()
            assert torch.isfinite(made.values).all()
    if sparsity == 0:
        assert torch.equal(whole.values, given)


@pytest.mark.parametrize(("n", "m"), N_OF_M)
def test_each_group_keeps_n(n: int, m: int) -> None:
    weight, inputs = layer(10, 168)
    made = sparsegpt(weight, inputs, Pattern(n=n, m=m))
    assert check_nm(made.mask, n, m).valid
    assert (made.mask.view(10, -1, m).sum(dim=2) == n).all()
    # the mutation: the mask along the outputs
    assert not check_nm(sparsegpt(weight, inputs, Pattern(1 - n / m)).mask, n, m).valid
    with pytest.raises(BadInput, match="does not fit rows of 6"):
        sparsegpt(*layer(4, 6), Pattern(n=2, m=4))  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [32, 128])
def test_with_unrelated_inputs_it_is_magnitude_in_each_block(block: int) -> None:
    weight, inputs = layer(24, 160)
    same = replace(inputs, hessian=torch.eye(160))
    made = sparsegpt(weight, same, Pattern(0.5), block)
    for start in range(0, 160, block):
        part = finished(Magnitude(Pattern(0.5)).prune(weight[:, start : start + block].clone()))
        assert torch.equal(made.values[:, start : start + block], part.values)
    groups = sparsegpt(weight, same, Pattern(n=2, m=4), block)
    assert torch.equal(groups.values, finished(Magnitude(Pattern(n=2, m=4)).prune(weight)).values)
    # the mutations: inputs that depend on one another; one block for all
    assert not torch.equal(sparsegpt(weight, inputs, Pattern(n=2, m=4), block).values, groups.values)
    assert not torch.equal(made.values, finished(Magnitude(Pattern(0.5)).prune(weight)).values)


def obs(weight: Tensor, hessian: Tensor, mask: Tensor) -> Tensor:
    """After each column, the free columns are solved anew for the least output error: the closed form, in fp64."""
    w, h = weight.double().clone(), hessian.double()
    for i in range(w.shape[1]):
        moved = torch.where(mask[:, i], 0.0, -w[:, i])
        w[:, i] += moved
        if i + 1 < w.shape[1]:
            w[:, i + 1 :] -= torch.linalg.solve(h[i + 1 :, i + 1 :], torch.outer(h[i + 1 :, i], moved)).t()
    return w.float()


@pytest.mark.parametrize("pattern", [Pattern(0.5), Pattern(n=2, m=4)], ids=by_label)
@pytest.mark.parametrize("block", [8, 16, 128])
def test_errors_are_passed_on_as_the_closed_form_has_it(
    block: int, pattern: Pattern, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, inputs = layer(16, 48)
    assert inputs.hessian is not None
    damped = inputs.hessian + 0.01 * inputs.hessian.diagonal().mean() * torch.eye(48)
    made = sparsegpt(weight, inputs, pattern, block)
    assert torch.allclose(made.values, obs(weight, damped, made.mask), atol=2e-5)
    # the mutation: the transposed factor passes errors on wrongly
    right = factor.inverse_lower
    monkeypatch.setattr(factor, "inverse_lower", lambda lower: right(lower).roll(1, 1).tril())
    wrong = sparsegpt(weight, inputs, pattern, block)
    assert not torch.allclose(wrong.values, obs(weight, damped, wrong.mask), atol=2e-3)


@pytest.mark.parametrize("pattern", PATTERNS, ids=by_label)
def test_matrices_of_one_input_go_together_with_the_same_result(pattern: Pattern) -> None:
    weight, inputs = layer(40, 96)
    parts = [weight[:24], weight[24:]]
    together = finished(SparseGpt(pattern).prune_together(parts, inputs))
    for part, made in zip(parts, together, strict=True):
        alone = sparsegpt(part, inputs, pattern)
        assert alone.kept == made.kept
        assert float((alone.mask != made.mask).float().mean()) < 0.003  # near ties fall either way
        agreed = (alone.mask == made.mask).all(dim=1)
        assert torch.allclose(alone.values[agreed], made.values[agreed], atol=1e-4)


def test_inputs_that_never_came_go_first_and_are_named() -> None:
    weight, inputs = layer(12, 64)
    x = inputs.rows.clone()
    x[:, [3, 17]] = 0
    made = sparsegpt(weight, inputs_of(x), Pattern(0.25))
    assert made.dead == 2
    assert made.notes == ("2 of 64 inputs were always 0; their weights were the first to go.",)
    assert not made.mask[:, [3, 17]].any()
    assert made.mask.numel() - made.kept == 12 * 16
    assert torch.equal(sparsegpt(weight, inputs_of(x), Pattern(0.0)).values, weight)
    nothing = sparsegpt(weight, inputs_of(torch.zeros(10, 64)), Pattern(0.5))
    assert nothing.fell_back
    assert nothing.notes == ("Pruned by magnitude in each block, not by SparseGPT: all inputs were always 0.",)
    assert torch.equal(nothing.values, finished(Magnitude(Pattern(0.5)).prune(weight)).values)


@pytest.mark.parametrize(
    ("hessian", "why"),
    [
        (-torch.eye(64), "the Hessian was not positive definite even with damping 1"),
        (torch.eye(64).fill_diagonal_(float("nan")), "the inputs are not all finite"),
    ],
)
def test_a_hopeless_hessian_falls_back_and_says_so(hessian: Tensor, why: str) -> None:
    weight, inputs = layer(12, 64)
    for pattern in (Pattern(0.5), Pattern(n=2, m=4)):
        made = sparsegpt(weight, replace(inputs, hessian=hessian), pattern)
        assert made.fell_back
        assert made.notes == (f"Pruned by magnitude in each block, not by SparseGPT: {why}.",)
        assert torch.equal(made.values, finished(Magnitude(pattern).prune(weight)).values)


def test_damping_is_raised_in_steps_and_named() -> None:
    weight, inputs = layer(12, 64)
    few = inputs_of(inputs.rows[:5])  # rank 5 of 64
    made = finished(SparseGpt(Pattern(0.5), damping=0.0).prune(weight, few))
    assert isinstance(made, SparseGptPruned)
    assert 0 < made.damping <= 1
    assert "damping raised from 0 to" in made.notes[0]
    assert made.sparsity == 0.5


def test_what_cannot_be_done_is_refused() -> None:
    weight, inputs = layer(12, 64)
    with pytest.raises(BadInput, match="needs the Hessian"):
        finished(SparseGpt().prune(weight))
    with pytest.raises(BadInput, match=r"Hessian of \(64, 64\) does not fit a weight with 32 inputs"):
        finished(SparseGpt().prune(weight[:, :32], inputs))
    spoilt = weight.clone()
    spoilt[2, 5] = float("nan")
    with pytest.raises(BadInput, match="row 2, column 5"):
        finished(SparseGpt().prune(spoilt, inputs))
    with pytest.raises(BadInput, match="Damping is 0 to 1"):
        SparseGpt(damping=2.0)
    for block in (0, 12, 2048, True):
        with pytest.raises(BadInput, match="8 to 1024 columns"):
            SparseGpt(block=block)
