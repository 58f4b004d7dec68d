"""Clipping: what each rule does to a range, and that the searches find what they look for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput
from lab.quantization.clipping import RATIOS, Clip
from lab.quantization.grid import KINDS, Grid, Kind, Share
from lab.quantization.nearest import Nearest
from lab.quantization.rounding_errors import energy
from lab.steps import finished

SHARES: tuple[Share, ...] = (32, 128, "row", "tensor")


def matrix(rows: int = 24, columns: int = 288) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(3)) * 0.05


def inputs(columns: int = 288, *, hessian: bool = False) -> LayerInputs:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(40, columns, generator=generator) * torch.rand(columns, generator=generator).pow(3) * 5
    return LayerInputs(40, 2 * x.T @ x / 40 if hessian else None, x.abs().mean(0), x.square().mean(0), x)


def after(weight: Tensor, grid: Grid, clip: Clip, given: LayerInputs | None = None) -> Tensor:
    return finished(Nearest(grid, clip).quantize(weight, given)).dequantize()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", SHARES)
def test_a_ratio_of_one_and_a_percentile_of_100_clip_nothing(kind: Kind, share: Share) -> None:
    weight, grid = matrix(), Grid(4, kind, share, ragged=True)
    plain = after(weight, grid, Clip.none)
    assert torch.equal(after(weight, grid, Clip("ratio", 1.0)), plain)
    if kind != "full_range":
        assert torch.equal(after(weight, grid, Clip("percentile", 100)), plain)
    assert not torch.equal(after(weight, grid, Clip("ratio", 0.8)), plain)
    assert not torch.equal(after(weight, grid, Clip("percentile", 95)), plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", SHARES)
def test_the_searched_ratio_is_the_best_of_all_for_each_group(kind: Kind, share: Share) -> None:
    weight, grid = matrix(), Grid(3, kind, share, ragged=True)
    found = (weight - after(weight, grid, Clip("weight_error"))).square()
    tried = torch.stack([(weight - after(weight, grid, Clip("ratio", ratio))).square() for ratio in RATIOS])
    assert energy(found) <= float(tried.double().sum((1, 2)).min()) * (1 + 1e-9)
    if share != "tensor":
        size = grid.group_size(288)
        for run in (slice(0, size), slice(288 // size * size, 288)):  # the first group, and a smaller last one
            best = tried[:, :, run].sum(2).amin(0)
            assert torch.allclose(found[:, run].sum(1), best, rtol=1e-5)
    assert energy(found) < energy(weight - after(weight, grid, Clip.none))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("hessian", [False, True])
def test_the_output_search_lessens_the_output_error(share: Share, hessian: bool) -> None:
    weight, grid, given = matrix(), Grid(3, "absmax", share, ragged=True), inputs(hessian=hessian)

    def output_error(clip: Clip) -> float:
        """Of each group by itself, which is what is searched."""
        change = weight - after(weight, grid, clip, given)
        size = grid.group_size(288)
        return sum(energy(x @ e.T) for x, e in zip(given.rows.split(size, 1), change.split(size, 1), strict=True))

    best = output_error(Clip("output_error"))
    assert all(best <= output_error(Clip("ratio", ratio)) * (1 + 1e-5) for ratio in RATIOS)
    # the mutation: the search that looks at weights alone does worse, and the other way round
    if share != "tensor":
        assert best < output_error(Clip("weight_error")) * 0.999
        by_output = energy(weight - after(weight, grid, Clip("output_error"), given))
        assert energy(weight - after(weight, grid, Clip("weight_error"))) < by_output


def test_rows_and_their_hessian_lead_to_the_same_ratios() -> None:
    weight, grid = matrix(), Grid(4, "absmax", 32)
    by_rows = after(weight, grid, Clip("output_error"), inputs())
    assert float((by_rows == after(weight, grid, Clip("output_error"), inputs(hessian=True))).float().mean()) > 0.98


def test_a_percentile_is_that_of_torch() -> None:
    weight = matrix(3, 64)
    reach = torch.quantile(weight.abs(), 0.9, dim=1)
    made = finished(Nearest(Grid(8, "absmax", 64, scale_format="float32"), Clip("percentile", 90)).quantize(weight))
    assert torch.allclose(made.tensors()["scales"][:, 0], reach / 127, rtol=1e-5)
    ends = torch.quantile(weight, torch.tensor([0.05, 0.95]), dim=1)
    grid = Grid(8, "float_minimum", 64, scale_format="float32")
    made = finished(Nearest(grid, Clip("percentile", 90)).quantize(weight))
    assert torch.allclose(made.tensors()["zeros"][:, 0], ends[0], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["ratio", "percentile", "weight_error", "output_error"])
def test_odd_groups_stay_finite(kind: Kind, how: str) -> None:
    weight = matrix(6, 64)
    weight[0], weight[1], weight[2], weight[3] = 0, 1e-30, 0.3, -1e-42
    clip = Clip(how, 99 if how == "percentile" else 0.9)  # type: ignore[arg-type]
    made = after(weight, Grid(4, kind, 64), clip, inputs(64))
    assert torch.isfinite(made).all()
    assert float(made[0].abs().max()) == 0


def test_bad_rules_are_refused_in_words() -> None:
    for how, amount in (
        ("ratio", 0.0),
        ("ratio", 1.5),
        ("ratio", float("nan")),
        ("percentile", 20),
        ("percentile", 101),
    ):
        with pytest.raises(BadInput, match=repr(amount)):
            Clip(how, amount)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no clipping"):
        Clip("often")  # type: ignore[arg-type]
    method = Nearest(Grid(4, "absmax", 32), Clip("output_error"))
    assert method.wants_inputs
    with pytest.raises(BadInput, match="needs calibration inputs"):
        finished(method.quantize(matrix()))
    with pytest.raises(BadInput, match="takes 288 numbers"):
        finished(method.quantize(matrix(), inputs(64)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [32, "row", "tensor"])
def test_a_percentile_of_mostly_zeros_keeps_the_full_range(kind: Kind, share: Share) -> None:
    weight = torch.zeros(2, 32)
    weight[:, 3], weight[:, 20] = 1.0, -2.0
    grid = Grid(8, kind, share)
    found = after(weight, grid, Clip("percentile", 90))
    assert torch.allclose(found, weight, atol=0.02)
    assert torch.equal(found, after(weight, grid, Clip.none))
