"""Exact counts among ties: against a stable sort, and against the threshold that a quick version would use."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lab.errors import BadInput
from lab.pruning import threshold
from lab.pruning.choose import by_numpy, by_torch, lowest
from lab.pruning.pattern import N_OF_M, Pattern
from lab.pruning.threshold import kth_smallest
from lab.steps import finished


def reference(scores: Tensor, pattern: Pattern) -> Tensor:
    """A stable sort of each group on its own."""
    rows, columns = scores.shape
    width = pattern.m or (columns if pattern.scope == "row" else rows * columns)
    groups = scores.float().reshape(-1, width).numpy()
    order = np.argsort(groups, axis=1, kind="stable")[:, : round(pattern.sparsity * width)]
    pruned = np.zeros(groups.shape, dtype=bool)
    np.put_along_axis(pruned, order, True, axis=1)
    return torch.from_numpy(pruned).reshape(rows, columns)


def quick(scores: Tensor, pattern: Pattern) -> Tensor:
    """The mutation: all scores up to the threshold, whatever their number."""
    flat = scores.flatten().sort().values
    return scores <= flat[int(pattern.sparsity * flat.numel())]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Pattern]:
    seed = draw(st.integers(0, 10_000))
    values = draw(st.sampled_from([1, 2, 3, 7, 1000]))  # different ones: the fewer, the more ties
    generator = torch.Generator().manual_seed(seed)
    if draw(st.booleans()):
        n, m = draw(st.sampled_from(N_OF_M))
        rows, columns, pattern = draw(st.integers(1, 9)), m * draw(st.integers(1, 9)), Pattern(n=n, m=m)
    else:
        rows, columns = draw(st.integers(1, 13)), draw(st.integers(1, 40))
        share = draw(st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)))
        pattern = Pattern(share, draw(st.sampled_from(["matrix", "row"])))
    scores = torch.randint(0, values, (rows, columns), generator=generator).float() / values
    return scores * draw(st.sampled_from([1.0, 1e-38, 1e38])), pattern


@given(cases())
@settings(max_examples=300, deadline=None)
def test_the_lowest_go_and_of_equal_ones_the_earlier(case: tuple[Tensor, Pattern]) -> None:
    scores, pattern = case
    before = scores.clone()
    pruned = lowest(scores, pattern)
    assert torch.equal(pruned, reference(scores, pattern))
    assert torch.equal(scores, before)
    if pattern.m:
        groups = pruned.view(-1, pattern.m).sum(dim=1)
        assert (groups == pattern.m - pattern.n).all()
    elif pattern.scope == "row":
        assert (pruned.sum(dim=1) == pattern.pruned_of(scores.shape[1])).all()
    else:
        assert int(pruned.sum()) == pattern.pruned_of(scores.numel())


def test_a_threshold_alone_takes_too_many() -> None:
    scores = torch.zeros(4, 8)
    scores[:, 7] = 1
    assert int(lowest(scores, Pattern(0.0)).sum()) == 0
    assert int(quick(scores, Pattern(0.0)).sum()) == 28  # 87.5 % where nothing was asked for
    assert int(lowest(scores, Pattern(1.0)).sum()) == 32
    with pytest.raises(IndexError):
        quick(scores, Pattern(1.0))


@pytest.mark.parametrize("scope", ["matrix", "row"])
@pytest.mark.parametrize("piece", [1, 30, 64, 2**20])
def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch, scope: str, piece: int) -> None:
    monkeypatch.setattr(threshold, "PIECE", piece)
    scores = torch.randint(0, 5, (37, 30), generator=torch.Generator().manual_seed(0)).float()
    pattern = Pattern(0.37, scope)  # type: ignore[arg-type]
    assert torch.equal(lowest(scores, pattern), reference(scores, pattern))


@given(st.lists(st.floats(0, width=32, allow_nan=False), min_size=1, max_size=50), st.data())
@settings(max_examples=200, deadline=None)
def test_the_threshold_is_the_kth_number(numbers: list[float], data: st.DataObject) -> None:
    values = torch.tensor(numbers, dtype=torch.float32)
    count = data.draw(st.integers(1, len(numbers)))
    found = finished(kth_smallest(lambda: iter(values.split(7)), count, len(numbers)))
    wanted = values.sort().values[count - 1]
    assert found.value == float(wanted)
    assert found.below == int((values < wanted).sum())
    assert found.equal == int((values == wanted).sum())
    assert found.below + found.ties == count


def test_other_devices_find_the_same_threshold() -> None:
    scores = torch.randint(0, 9, (50, 33), generator=torch.Generator().manual_seed(0)).float()
    for count in (1, 16, 33):
        assert torch.equal(by_numpy(scores, count), by_torch(scores, count))
        assert torch.equal(by_numpy(scores, count), scores.sort(dim=1).values[:, count - 1 : count])


def test_infinities_are_in_order_and_no_number_is_not() -> None:
    scores = torch.tensor([[float("inf"), 1.0, float("inf"), 0.0]])
    for pattern in (Pattern(0.75), Pattern(0.75, "row"), Pattern(n=1, m=4)):
        assert lowest(scores, pattern).tolist() == [[True, True, False, True]]
    for bad in (float("nan"), -1.0):
        with pytest.raises(BadInput, match="cannot be compared"):
            lowest(torch.tensor([[0.0, bad]]), Pattern())


def test_half_of_seven_is_four_and_so_counted() -> None:
    """`round` takes a half to the even number, 4; `int` would take 3."""
    scores = torch.arange(7.0).view(1, 7)
    for scope in ("matrix", "row"):
        pattern = Pattern(0.5, scope)  # type: ignore[arg-type]
        assert pattern.pruned_of(7) == int(lowest(scores, pattern).sum()) == 4 != int(0.5 * 7)


@pytest.mark.parametrize(("columns", "m"), [(6, 4), (12, 8), (2, 4)])
def test_a_width_that_groups_do_not_divide_is_refused(columns: int, m: int) -> None:
    with pytest.raises(BadInput, match=f"{columns} is no multiple of {m}"):
        lowest(torch.ones(8, columns), Pattern(n=m // 2, m=m))


def test_bad_patterns_are_refused_in_words() -> None:
    for values, words in (
        ({"sparsity": 1.1}, "1.1"), ({"sparsity": -0.1}, "-0.1"), ({"sparsity": float("nan")}, "nan"),
        ({"n": 3, "m": 4}, "3:4"), ({"n": 0, "m": 4}, "0:4"), ({"n": 2}, "2:0"), ({"scope": "column"}, "column"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=words) as caught:
            Pattern(**values)  # type: ignore[arg-type]
        assert caught.value.remedy
    assert Pattern(n=1, m=4).sparsity == 0.75
    assert Pattern(0.3, n=2, m=4).label == "2:4"
    assert Pattern(0.3).label == "30 %"
