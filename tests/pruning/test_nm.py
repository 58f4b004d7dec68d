"""The N:M validator: every broken group is found, and the wrong axis is named."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import BadInput
from lab.pruning.magnitude import Magnitude
from lab.pruning.nm import MOST_NAMED, BrokenGroup, check_nm, require_nm
from lab.pruning.pattern import N_OF_M, Pattern
from lab.steps import finished

Pair = tuple[int, int]


@given(st.sampled_from(N_OF_M), st.integers(1, 6), st.integers(1, 6), st.integers(0, 10_000), st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_each_group_is_counted(pair: Pair, rows: int, groups: int, seed: int, share: float) -> None:
    n, m = pair
    mask = torch.rand(rows, groups * m, generator=torch.Generator().manual_seed(seed)) < share
    report = check_nm(mask, n, m)
    counts = [
        (row, group, sum(mask[row, group * m : (group + 1) * m].tolist()))
        for row in range(rows)
        for group in range(groups)
    ]
    assert report.broken == tuple(BrokenGroup(*c) for c in counts if c[2] > n)
    assert report.broken_count == len(report.broken)
    assert report.fewer == sum(c[2] < n for c in counts)
    assert report.groups == rows * groups
    assert report.valid == (not report.broken)
    assert check_nm(torch.where(mask, -0.25, 0.0), n, m) == report  # a weight, or one with NaN, as its mask
    assert check_nm(torch.where(mask, float("nan"), 0.0), n, m) == report


@pytest.mark.parametrize(("n", "m"), N_OF_M)
def test_one_weight_too_many_is_found(n: int, m: int) -> None:
    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    made = finished(Magnitude(Pattern(n=n, m=m)).prune(weight))
    assert check_nm(made.mask, n, m).valid
    assert "All" in check_nm(made.values, n, m).words
    require_nm(made.values, n, m)
    mask = made.mask.clone()
    column = int((~mask[9, m : 2 * m]).nonzero()[0]) + m
    mask[9, column] = True
    report = check_nm(mask, n, m)
    assert report.broken == (BrokenGroup(row=9, group=1, kept=n + 1),)
    assert not report.fits_along_out
    with pytest.raises(BadInput, match=f"up_proj: 1 of .* group 1 of row 9, columns {m} to {2 * m - 1}"):
        require_nm(mask, n, m, "up_proj")


@pytest.mark.parametrize(("n", "m"), N_OF_M)
def test_the_wrong_axis_is_named(n: int, m: int) -> None:
    weight = torch.randn(16, 32, generator=torch.Generator().manual_seed(1))
    turned = finished(Magnitude(Pattern(n=n, m=m)).prune(weight.t().contiguous())).mask.t()
    assert float(turned.float().mean()) == n / m  # the counts alone look right
    report = check_nm(turned, n, m)
    first = report.broken[0]
    assert int(turned[first.row, first.group * m : (first.group + 1) * m].sum()) == first.kept > n
    assert report.fits_along_out
    assert "this is the wrong axis" in report.words
    assert check_nm(turned.t(), n, m).valid


def test_fewer_weights_are_valid_and_counted() -> None:
    report = check_nm(torch.zeros(3, 8), 2, 4)
    assert report.valid
    assert report.fewer == 6


def test_many_broken_groups_are_counted_all_and_named_in_part() -> None:
    report = check_nm(torch.ones(600, 16), 2, 4)
    assert report.broken_count == 2400
    assert len(report.broken) == MOST_NAMED
    assert "2,400 of 2,400" in report.words


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="6 is no multiple of 4"):
        check_nm(torch.ones(4, 6), 2, 4)
    with pytest.raises(BadInput, match="no pattern 3:4"):
        check_nm(torch.ones(4, 8), 3, 4)
    with pytest.raises(BadInput, match="no pattern 0:0"):
        check_nm(torch.ones(4, 8), 0, 0)
    for matrix in (torch.ones(8), torch.ones(0, 8)):
        with pytest.raises(BadInput, match="no rows and columns"):
            check_nm(matrix, 2, 4)
