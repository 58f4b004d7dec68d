"""Many grids at once: the counts and moments of plain code, bit for bit; outliers; one group."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.quantization_sweep import grids, our_sweep, plain, plain_sweep
from lab.errors import BadInput
from lab.quantization.grid import KINDS, Grid, Kind, ScaleFormat
from lab.quantization.histograms import compare, group_before_after, worst, worst_on_grid
from lab.quantization.nearest import Nearest
from lab.quantization.rounding_errors import BINS, BLOCK, errors_of, power_above
from lab.quantization.sweep import limit_of, sweeping, swept
from lab.steps import finished

SIZES = (16, 48, 32, 128, 512, "row", "tensor")


def matrix(rows: int = 40, columns: int = 576, seed: int = 0) -> Tensor:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.05
    weight[:, 7] *= 6
    return weight


def after(weight: Tensor, grid: Grid) -> Tensor:
    return finished(Nearest(grid).quantize(weight)).dequantize()


@given(
    st.integers(0, 10_000),
    st.sampled_from(KINDS),
    st.integers(2, 8),
    st.sampled_from(["float16", "float32", "bfloat16"]),
    st.sampled_from([1e-9, 1.0, 4e3]),
)
@settings(max_examples=25, deadline=None)
def test_all_is_as_plain_code_has_it(seed: int, kind: Kind, bits: int, scales: ScaleFormat, size: float) -> None:
    weight = matrix(seed=seed) * size
    weight[2], weight[3], weight[4, :100] = 0, 1e-30, 0.3 * size
    for found in swept(weight, [Grid(bits, kind, share, True, scales) for share in SIZES]):  # type: ignore[arg-type]
        error = weight - after(weight, found.grid)
        assert torch.equal(found.counts, torch.histc(error, BINS, -found.limit, found.limit).long())
        assert int(found.counts.sum()) == weight.numel()
        assert found.max_error == float(error.abs().max())
        assert torch.equal(found.row_errors, error.abs().amax(1))
        wide = error.double().flatten()
        assert found.mean_square == float((torch.dot(wide, wide) / wide.numel()).float())
        assert found.max_error <= found.bound * (1 + 2e-3) + size * 1e-6


def test_the_benchmark_compares_what_it_says() -> None:
    weights = [matrix(30, 576), matrix(20, 1536, seed=1)]
    assert plain_sweep(weights) == our_sweep(weights)
    grid = grids()[0]
    limit = limit_of(float(weights[0].min()), float(weights[0].max()), grid)
    counts, largest, mean = plain(weights[0], grid.bits, 16, limit)
    # the mutations: another group size, another width, edges a little off
    assert plain(weights[0], grid.bits, 32, limit)[0] != counts
    assert plain(weights[0], grid.bits + 1, 16, limit)[1] != largest
    assert plain(weights[0], grid.bits, 16, limit * 1.01)[0] != counts
    assert plain(weights[0], grid.bits, 16, limit * 1.01)[1:] == (largest, mean)


def test_a_matrix_in_many_blocks_is_the_same_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, some = matrix(101, 600), [Grid(4, "absmax", 64, True), Grid(3, "asymmetric", "tensor")]
    whole = swept(weight, some)
    assert len(list(sweeping(weight, some))) == 2  # one block
    monkeypatch.setattr("lab.quantization.sweep.BLOCK", 600 * 9)
    assert len(list(sweeping(weight, some))) == 24
    for one, other in zip(whole, swept(weight, some), strict=True):
        assert torch.equal(one.counts, other.counts)
        assert (one.max_error, one.mean_square, one.bound) == (other.max_error, other.mean_square, other.bound)
    assert BLOCK > 101 * 600


def test_histograms_of_one_matrix_share_their_edges() -> None:
    found = compare(matrix(), [Grid(4, "absmax", size, True) for size in (16, 32, 64, 128, 256, 512)])
    assert len({one.limit for one in found}) == 1
    assert found[0].edges[0] == -found[0].limit
    assert found[0].edges[-1] == found[0].limit
    assert len(found[0].edges) == BINS + 1
    ratios = [one.signal_to_noise_db for one in found]
    assert ratios == sorted(ratios, reverse=True)  # smaller groups, less noise
    wide = compare(matrix(), [Grid(2, "absmax", 64), Grid(8, "absmax", 64)])
    assert wide[0].limit == wide[1].limit


def test_the_errors_of_any_method() -> None:
    weight = matrix()
    became = after(weight, Grid(3, "absmax", 64))
    found = errors_of(weight, became)
    error = weight - became
    assert torch.equal(found.counts, torch.histc(error, BINS, -found.limit, found.limit).long())
    assert found.limit / 2 <= found.max_error < found.limit
    assert found.beyond == 0
    near = errors_of(weight, became, found.limit / 8)
    assert near.beyond == int((error.abs() > near.limit).sum()) > 0
    assert torch.equal(near.counts, torch.histc(error, BINS, -near.limit, near.limit).long())
    db = 10 * math.log10(float(weight.double().square().sum() / error.double().square().sum()))
    assert found.signal_to_noise_db == pytest.approx(db)
    assert found.relative_error == pytest.approx(float(error.norm() / weight.norm()))
    same = errors_of(weight, weight)
    assert same.signal_to_noise_db == math.inf
    assert same.max_error == 0
    assert math.isnan(errors_of(weight * 0, weight * 0).signal_to_noise_db)


@pytest.mark.parametrize("share", SIZES)
def test_the_worst_weights_are_those_of_a_full_sort(share: int) -> None:
    weight, grid = matrix(), Grid(4, "absmax", share, True)
    (found,) = swept(weight, [grid])
    became = after(weight, grid)
    errors = (weight - became).abs()
    listed = worst_on_grid(weight, found, 5)
    assert [abs(one.error) for one in listed] == pytest.approx(
        errors.flatten().sort(descending=True).values[:5].tolist()
    )
    for one in listed:
        assert one.value == float(weight[one.row, one.column])
        assert one.became == float(became[one.row, one.column])
    assert worst(weight, became, errors_of(weight, became), 5) == listed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [128, "row", "tensor"])
def test_a_group_before_and_after(kind: Kind, share: int) -> None:
    weight, grid = matrix(), Grid(4, kind, share, ragged=True)
    became = after(weight, grid)
    last = grid.groups(576) - 1
    for group in {0, last}:
        view = group_before_after(weight, grid, 11, group)
        run = slice(view.start, view.start + len(view.before))
        assert view.before == tuple(weight[11, run].tolist())
        assert view.after == tuple(became[11, run].tolist())
        assert all(view.lowest <= code <= view.highest for code in view.codes)
    assert run.stop == 576 if last else run == slice(0, 576)
    with pytest.raises(BadInput, match="no group"):
        group_before_after(weight, grid, 11, last + 1)
    with pytest.raises(BadInput, match="row 40"):
        group_before_after(weight, grid, 40, 0)


def test_a_limit_is_a_power_of_two_and_large_enough() -> None:
    assert [power_above(x) for x in (0.0, 0.3, 0.5, 1.0)] == [2.0**-100, 0.5, 1.0, 2.0]
    for limit in (0.3, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match="power of two"):
            swept(matrix(), [Grid()], limit)
    with pytest.raises(BadInput, match="beyond the histogram's limit"):
        swept(matrix(), [Grid()], 2.0**-20)
    with pytest.raises(BadInput, match="do not divide"):
        swept(matrix(), [Grid(4, "absmax", 128)])
