"""GPTQ against round to nearest, brute force, the closed form of its update, and its own slow replay."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from calibrated import end, inputs_of, layer, nearest, output_square
from torch import Tensor

from lab.calibration import factor
from lab.calibration.factor import factoring, inverse_lower
from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput
from lab.quantization.affine import affine_of
from lab.quantization.gptq import Gptq, GptqWeight
from lab.quantization.gptq_replay import Replay, replaying
from lab.quantization.grid import KINDS, Grid, Kind
from lab.steps import finished

SHARES: tuple[int | str, ...] = (32, 96, "row", "tensor")
ORDERS = [(False, False), (False, True), (True, False), (True, True)]


def gptq(weight: Tensor, inputs: LayerInputs, grid: Grid, act_order: bool = True, static: bool = True) -> GptqWeight:
    made = finished(Gptq(grid, act_order, static).quantize(weight, inputs))
    assert isinstance(made, GptqWeight)
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("act_order", "static"), ORDERS)
def test_it_beats_round_to_nearest(kind: Kind, share: int, act_order: bool, static: bool) -> None:
    weight, inputs = layer(24, 192)
    grid = Grid(3, kind, share)  # type: ignore[arg-type]
    before = weight.clone()
    made = gptq(weight, inputs, grid, act_order, static)
    assert torch.equal(weight, before)
    ratio = (
        output_square(weight, made.dequantize(), inputs) / output_square(weight, nearest(weight, grid), inputs)
    ) ** 0.5
    assert ratio < 0.8
    # the loss is the output's error, with the damping's share in it
    assert inputs.hessian is not None
    damped = 0.01 * float(inputs.hessian.diagonal().mean()) * float((made.dequantize() - weight).square().sum()) / 2
    assert made.loss == pytest.approx(output_square(weight, made.dequantize(), inputs) + damped, rel=2e-3)
    assert int(made.codes.min()) >= grid.lowest
    assert int(made.codes.max()) <= grid.highest
    assert made.notes == ()
    assert made.damping == 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("act_order", "static"), ORDERS)
def test_with_unrelated_inputs_it_is_round_to_nearest(kind: Kind, share: int, act_order: bool, static: bool) -> None:
    weight, inputs = layer(24, 192)
    grid = Grid(4, kind, share)  # type: ignore[arg-type]
    same = replace(inputs, hessian=torch.eye(192))
    assert torch.equal(gptq(weight, same, grid, act_order, static).dequantize(), nearest(weight, grid))
    # the mutation: inputs that depend on one another
    assert not torch.equal(gptq(weight, inputs, grid, act_order, static).dequantize(), nearest(weight, grid))


@pytest.mark.parametrize("seed", range(6))
def test_it_lies_between_the_optimum_and_round_to_nearest(seed: int) -> None:
    """Brute force over all codes of three inputs at 2 bits."""
    weight, inputs = layer(5, 3, tokens=50, seed=seed)
    grid = Grid(2, "asymmetric", "row")
    affine = affine_of(weight, grid)
    assert affine.offset is not None
    codes = torch.tensor(list(product(range(4), repeat=3)), dtype=torch.float32)
    best = 0.0
    for row in range(5):
        levels = (codes - affine.offset[row]) * affine.scale[row]
        best += min(output_square(weight[row : row + 1], level[None], inputs) for level in levels)
    got = output_square(weight, gptq(weight, inputs, grid).dequantize(), inputs)
    rounded = output_square(weight, nearest(weight, grid), inputs)
    assert best <= got * (1 + 1e-5)
    assert got <= rounded * 1.05


def obs(weight: Tensor, hessian: Tensor, grid: Grid) -> Tensor:
    """After each column, the free columns are solved anew for the least output error: the closed form, in fp64."""
    w, h = weight.double().clone(), hessian.double()
    affine = affine_of(weight, grid)
    scale, size = affine.scale.double(), grid.group_size(weight.shape[1])
    for i in range(w.shape[1]):
        s = scale[:, i // size]
        fixed = (w[:, i] / s).round().clamp(grid.lowest, grid.highest) * s
        moved, w[:, i] = fixed - w[:, i], fixed
        if i + 1 < w.shape[1]:
            w[:, i + 1 :] -= torch.linalg.solve(h[i + 1 :, i + 1 :], torch.outer(h[i + 1 :, i], moved)).t()
    return w.float()


@pytest.mark.parametrize("block", [1, 5, 16, 128])
def test_errors_are_passed_on_as_the_closed_form_has_it(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, inputs = layer(16, 48)
    grid = Grid(4, "absmax", 16, scale_format="float32")
    assert inputs.hessian is not None
    damped = inputs.hessian + 0.01 * inputs.hessian.diagonal().mean() * torch.eye(48)
    method = Gptq(grid, act_order=False, block=block)
    expected = obs(weight, damped, grid)
    assert torch.allclose(finished(method.quantize(weight, inputs)).dequantize(), expected, atol=1e-6)
    # the mutation: the transposed factor passes errors on wrongly
    right = factor.inverse_lower
    monkeypatch.setattr(factor, "inverse_lower", lambda lower: right(lower).roll(1, 1).tril())
    assert not torch.allclose(finished(method.quantize(weight, inputs)).dequantize(), expected, atol=1e-6)


def test_the_factor_is_the_published_one() -> None:
    _, inputs = layer(1, 300)
    assert inputs.hessian is not None
    made = end(factoring(inputs.hessian, damping=0.01, act_order=False))
    damped = inputs.hessian.double() + 0.01 * inputs.hessian.diagonal().mean() * torch.eye(300)
    published = torch.linalg.cholesky(torch.linalg.inv(damped), upper=True)
    assert made.upper is not None
    assert float((made.upper - published).abs().max() / published.abs().max()) < 1e-3
    lower = torch.linalg.cholesky(damped)
    assert torch.allclose(inverse_lower(lower) @ lower, torch.eye(300, dtype=torch.float64), atol=1e-9)


@pytest.mark.parametrize("share", [16, 32, 48, 96, "row"])
@pytest.mark.parametrize(("act_order", "static"), ORDERS)
@pytest.mark.parametrize("block", [128, 40])
def test_the_replay_gives_the_same_codes(share: int, act_order: bool, static: bool, block: int) -> None:
    """Without blocks every weight is up to date when a group's scale is taken, so blocks must not be seen."""
    weight, inputs = layer(12, 192)
    method = Gptq(Grid(4, "asymmetric", share), act_order, static, block=block)
    made = finished(method.quantize(weight, inputs))
    assert isinstance(made, GptqWeight)
    shown = end(replaying(weight, inputs, method, range(12), count=192))
    codes = made.codes[:, shown.columns]
    assert float((codes != shown.codes).float().mean()) < 0.002  # ties fall either way in fp32
    assert float((made.dequantize()[:, shown.columns] - shown.values).abs().mean()) < 2e-3
    if not static and share != "row":
        # the mutation: scales from the weights as they were at first
        stale = end(replaying(weight, inputs, replace(method, static_groups=True), range(12), count=192))
        assert float((codes != stale.codes).float().mean()) > 0.02


def test_the_replay_accounts_for_every_change() -> None:
    weight, inputs = layer(12, 64)
    rows = (3, 7)
    shown = end(replaying(weight, inputs, Gptq(Grid(3, "absmax", 32)), rows, count=64))
    absorbed = -shown.error @ shown.spread
    assert torch.allclose(shown.at_turn - shown.original, absorbed, atol=1e-5)
    assert torch.allclose(shown.at_turn - shown.error, shown.values, atol=1e-6)
    assert torch.allclose(shown.passed_on, shown.error.abs() * shown.spread.abs().sum(dim=1), atol=1e-5)
    assert (shown.final_loss < shown.rounded_loss).all()
    # with the damping's share in it, the columns' losses sum to the output's error
    assert inputs.hessian is not None
    change = (shown.values - shown.original).square().sum(dim=1)
    damped = shown.final_loss + 0.01 * inputs.hessian.diagonal().mean() * change / 2
    assert torch.allclose(shown.loss.sum(dim=1), damped, rtol=2e-3)
    # the mutation: columns in another order absorb something else
    assert not torch.allclose(shown.at_turn - shown.original, -shown.error @ shown.spread.t(), atol=1e-5)
    part: Replay = end(replaying(weight, inputs, Gptq(Grid(3, "absmax", 32)), rows, start=20, count=10))
    assert torch.equal(part.at_turn, shown.at_turn[:, 20:30])
    assert torch.equal(part.passed_on, shown.passed_on[:, 20:30])


@pytest.mark.parametrize("rows", [[], [12], [-1], list(range(17))])
def test_a_replay_of_rows_that_are_not_there_is_refused(rows: list[int]) -> None:
    weight, inputs = layer(12, 64)
    with pytest.raises(BadInput, match="1 to 16 of the 12 rows"):
        end(replaying(weight, inputs, Gptq(), rows))


@pytest.mark.parametrize("share", [16, 32])
def test_static_groups_are_those_of_neighbouring_columns(share: int) -> None:
    """Q11: in activation order the scales are those of the original columns' groups; codes lie where they belong."""
    weight, inputs = layer(12, 192)
    grid = Grid(4, "asymmetric", share)
    made = gptq(weight, inputs, grid)
    plain = affine_of(weight, grid)
    assert torch.equal(made.affine.scale, plain.scale)
    assert made.affine.offset is not None
    assert plain.offset is not None
    assert torch.equal(made.affine.offset, plain.offset)
    assert made.order is None
    error = output_square(weight, made.dequantize(), inputs)
    # the mutation: codes left in the order in which they were made
    assert inputs.hessian is not None
    columns = torch.argsort(inputs.hessian.diagonal(), descending=True)
    scrambled = replace(made, codes=made.codes[:, columns])
    assert output_square(weight, scrambled.dequantize(), inputs) > 20 * error


def test_groups_of_reordered_columns_carry_an_index() -> None:
    weight, inputs = layer(12, 192)
    made = gptq(weight, inputs, Grid(4, "absmax", 32), act_order=True, static=False)
    assert made.order is not None
    assert torch.bincount(made.order).tolist() == [32] * 6
    assert inputs.hessian is not None
    first = torch.argsort(inputs.hessian.diagonal(), descending=True)[:32]
    assert made.order[first].unique().tolist() == [0]
    assert made.storage.other_bits == 32 * 192
    error = output_square(weight, made.dequantize(), inputs)
    # the mutation: an index of groups as if they were neighbours
    wrong = replace(made, order=torch.arange(192) // 32)
    assert output_square(weight, wrong.dequantize(), inputs) > 2 * error


def test_a_ragged_last_group_has_its_own_scale() -> None:
    weight, inputs = layer(8, 80)
    for static in (False, True):
        made = gptq(weight, inputs, Grid(4, "absmax", 32, ragged=True), static=static)
        assert made.affine.scale.shape == (8, 3)
        assert output_square(weight, made.dequantize(), inputs) < output_square(
            weight, nearest(weight, Grid(4, "absmax", 32, ragged=True)), inputs
        )
    with pytest.raises(BadInput, match=r"Groups of 32 do not divide rows of 80"):
        gptq(weight, inputs, Grid(4, "absmax", 32))


def test_matrices_of_one_input_go_together_with_the_same_result() -> None:
    weight, inputs = layer(40, 96)
    for share, static in product((32, "row", "tensor"), (False, True)):
        method = Gptq(Grid(4, "asymmetric", share), static_groups=static)  # type: ignore[arg-type]
        parts = [weight[:24], weight[24:]]
        together = end(method.quantize_together(parts, inputs))
        for part, made in zip(parts, together, strict=True):
            alone = finished(method.quantize(part, inputs))
            assert float((made.codes != alone.tensors()["codes"]).float().mean()) < 0.003
            assert torch.allclose(made.affine.scale, alone.tensors()["scales"], rtol=2e-3)
            assert made.shape == tuple(part.shape)


def test_inputs_that_never_came_are_named() -> None:
    weight, inputs = layer(12, 64)
    x = inputs.rows.clone()
    x[:, [3, 17]] = 0
    made = gptq(weight, inputs_of(x), Grid(4, "absmax", 32))
    assert made.dead == 2
    assert made.notes == ("2 of 64 inputs were always 0; their weights were set to 0.",)
    assert not made.dequantize()[:, [3, 17]].any()
    assert torch.isfinite(made.dequantize()).all()
    nothing = gptq(weight, inputs_of(torch.zeros(10, 64)), Grid(4, "absmax", 32))
    assert nothing.fell_back
    assert nothing.notes == ("Rounded to nearest, not GPTQ: all inputs were always 0.",)
    assert torch.equal(nothing.dequantize(), nearest(weight, Grid(4, "absmax", 32)))


def test_damping_is_raised_in_steps_and_named() -> None:
    weight, inputs = layer(12, 64)
    few = inputs_of(inputs.rows[:5])  # rank 5 of 64
    none = finished(Gptq(Grid(4, "absmax", 32), damping=0.0).quantize(weight, few))
    assert isinstance(none, GptqWeight)
    assert 0 < none.damping <= 1
    assert "damping raised from 0 to" in none.notes[0]
    assert not none.fell_back
    assert inputs.hessian is not None
    bad = inputs.hessian - 0.2 * inputs.hessian.diagonal().mean() * torch.eye(64)
    raised = gptq(weight, replace(inputs, hessian=bad), Grid(4, "absmax", 32))
    assert raised.damping == pytest.approx(0.27)
    assert raised.notes == ("The Hessian was not positive definite: damping raised from 0.01 to 0.27.",)


@pytest.mark.parametrize(
    ("hessian", "why"),
    [
        (-torch.eye(64), "the Hessian was not positive definite even with damping 1"),
        (torch.eye(64).fill_diagonal_(float("nan")), "the inputs are not all finite"),
        (torch.eye(64).fill_diagonal_(float("inf")), "the inputs are not all finite"),
    ],
)
def test_a_hopeless_hessian_falls_back_and_says_so(hessian: Tensor, why: str) -> None:
    weight, inputs = layer(12, 64)
    made = gptq(weight, replace(inputs, hessian=hessian), Grid(4, "absmax", 32))
    assert made.fell_back
    assert made.notes == (f"Rounded to nearest, not GPTQ: {why}.",)
    assert torch.equal(made.dequantize(), nearest(weight, Grid(4, "absmax", 32)))


def test_what_cannot_be_done_is_refused() -> None:
    weight, inputs = layer(12, 64)
    with pytest.raises(BadInput, match="needs the Hessian"):
        finished(Gptq().quantize(weight))
    with pytest.raises(BadInput, match=r"Hessian of \(64, 64\) does not fit a weight with 32 inputs"):
        finished(Gptq(Grid(4, "absmax", 32)).quantize(weight[:, :32], inputs))
    spoilt = weight.clone()
    spoilt[2, 5] = float("nan")
    with pytest.raises(BadInput, match="row 2, column 5"):
        finished(
            Gptq().quantize(weight.index_put((torch.tensor(2), torch.tensor(5)), torch.tensor(float("nan"))), inputs)
        )
    with pytest.raises(BadInput, match="Damping is 0 to 1"):
        Gptq(damping=2.0)
    with pytest.raises(BadInput, match="1 to 1024 columns"):
        Gptq(block=0)


def test_sixteen_times_finer_levels_leave_next_to_no_error() -> None:
    weight, inputs = layer(12, 64)
    errors = [
        output_square(weight, gptq(weight, inputs, Grid(bits, "absmax", 32)).dequantize(), inputs) for bits in (4, 8)
    ]
    assert errors[1] < errors[0] / 100


def test_it_pauses_between_blocks() -> None:
    weight, inputs = layer(12, 192)
    shares = list(Gptq(Grid(4, "absmax", 32), block=32).quantize(weight, inputs))
    assert shares[-1] == 1.0
    assert len(shares) >= 6
    assert shares == sorted(shares)
