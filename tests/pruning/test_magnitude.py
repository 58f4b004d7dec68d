"""Magnitude pruning against torch's own, on odd matrices, and on weights that lie the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from lab.errors import BadInput
from lab.models.linear import linear_module, out_in
from lab.pruning.magnitude import Magnitude
from lab.pruning.method import Pruned
from lab.pruning.nm import check_nm
from lab.pruning.pattern import Pattern, Scope
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

PATTERNS = (Pattern(0.5), Pattern(0.5, "row"), Pattern(n=2, m=4), Pattern(n=4, m=8), Pattern(n=1, m=4))


def matrix(rows: int = 24, columns: int = 64, seed: int = 0) -> Tensor:
    """All magnitudes different."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(rows * columns, generator=generator).float() + 1
    signs = torch.randint(0, 2, (rows * columns,), generator=generator) * 2 - 1
    return (order * signs).view(rows, columns) / 1024


def made(weight: Tensor, pattern: Pattern) -> Pruned:
    return finished(Magnitude(pattern).prune(weight))


def torch_mask(weight: Tensor, amount: float) -> Tensor:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight.clone())
    prune.l1_unstructured(layer, "weight", amount=amount)  # type: ignore[no-untyped-call]
    mask: Tensor = layer.weight_mask  # type: ignore[assignment]
    return mask.bool()


@pytest.mark.parametrize("amount", [0.0, 0.1, 0.37, 0.5, 0.75, 0.999, 1.0])
@pytest.mark.parametrize("shape", [(24, 64), (7, 13), (1, 7)])
def test_it_is_torchs_l1_unstructured(amount: float, shape: tuple[int, int]) -> None:
    weight = matrix(*shape)
    found = made(weight, Pattern(amount))
    assert torch.equal(found.mask, torch_mask(weight, amount))
    assert torch.equal(found.values, weight * found.mask)
    if 0.1 < amount < 0.999:  # the mutation: by value instead of magnitude
        wrong = torch.zeros(weight.numel(), dtype=torch.bool)
        wrong[weight.flatten().argsort()[round(amount * weight.numel()) :]] = True
        assert not torch.equal(wrong.view(shape), torch_mask(weight, amount))


def test_rows_are_pruned_each_for_itself() -> None:
    weight = matrix() * torch.arange(1, 25)[:, None] ** 2  # rows of very different sizes
    found = made(weight, Pattern(0.5, "row"))
    each = torch.cat([torch_mask(row[None], 0.5) for row in weight])
    assert torch.equal(found.mask, each)
    assert (found.mask.sum(dim=1) == 32).all()
    assert not torch.equal(made(weight, Pattern(0.5)).mask, each)  # the mutation: within the matrix


def test_groups_lie_along_in_features() -> None:
    weight = matrix(8, 16)
    for n, m in ((2, 4), (4, 8), (1, 4)):
        mask = made(weight, Pattern(n=n, m=m)).mask
        for row in range(8):
            for start in range(0, 16, m):
                group = weight[row, start : start + m].abs()
                wanted = group >= group.sort(descending=True).values[n - 1]
                assert torch.equal(mask[row, start : start + m], wanted)
        turned = made(weight.t().contiguous(), Pattern(n=n, m=m)).mask.t()  # the mutation: down the columns
        assert not check_nm(turned, n, m).valid


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: f"{p.label} {p.scope}")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_any_dtype_and_layout(pattern: Pattern, dtype: torch.dtype) -> None:
    weight = torch.randn(24, 64, generator=torch.Generator().manual_seed(2)).to(dtype)
    before = weight.clone()
    found = made(weight, pattern)
    assert torch.equal(weight, before)
    assert found.mask.dtype == torch.bool
    assert found.values.dtype == torch.float32
    assert torch.equal(found.values, torch.where(found.mask, weight.float(), torch.zeros(())))
    assert found.values.untyped_storage().data_ptr() != weight.untyped_storage().data_ptr()
    assert found.sparsity == pattern.sparsity
    strided = torch.empty(64, 24, dtype=dtype).t()
    strided.copy_(weight)
    assert torch.equal(made(strided, pattern).mask, found.mask)
    assert torch.equal(made(weight.float(), pattern).mask, found.mask)


def test_what_is_pruned_is_plus_zero() -> None:
    """-1 times a mask of 0 is -0, which a bitwise comparison and 1 / w tell from 0."""
    weight = -torch.ones(4, 8)
    assert not torch.signbit(made(weight, Pattern(1.0)).values).any()
    assert torch.signbit(weight * 0).all()


@pytest.mark.parametrize("shape", [(1, 8), (8, 1), (1, 1), (5, 3)])
@pytest.mark.parametrize("scope", ["matrix", "row"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 1.0])
def test_small_matrices_of_zeros(shape: tuple[int, int], scope: Scope, sparsity: float) -> None:
    pattern = Pattern(sparsity, scope)
    found = made(torch.zeros(shape), pattern)
    wanted = shape[0] * pattern.pruned_of(shape[1]) if scope == "row" else pattern.pruned_of(shape[0] * shape[1])
    assert int((~found.mask).sum()) == wanted
    assert found.kept == shape[0] * shape[1] - wanted
    flat = found.mask.flatten() if scope == "matrix" else found.mask[0]
    assert flat.tolist() == sorted(flat.tolist())  # the earlier go first


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: f"{p.label} {p.scope}")
def test_what_is_not_finite_is_refused_with_its_place(bad: float, pattern: Pattern) -> None:
    weight = matrix()
    weight[3, 40] = bad
    with pytest.raises(BadInput, match="row 3, column 40"):
        made(weight, pattern)


def test_other_bad_input_is_refused() -> None:
    for weight in (torch.ones(4), torch.ones(0, 4), torch.ones(4, 4, dtype=torch.int64)):
        with pytest.raises(BadInput, match="no matrix"):
            made(weight, Pattern())
    with pytest.raises(BadInput, match="6 is no multiple of 4"):
        made(torch.ones(4, 6), Pattern(n=2, m=4))


def test_it_pauses_and_tells_how_far_it_is() -> None:
    for pattern in PATTERNS:
        shares = list(Magnitude(pattern).prune(torch.randn(5000, 512)))
        assert len(shares) >= 6
        assert shares == sorted(shares)
        assert shares[0] >= 0
        assert shares[-1] <= 1


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: f"{p.label} {p.scope}")
def test_a_conv1d_is_pruned_along_its_inputs(tiny: Callable[..., LoadedModel], pattern: Pattern) -> None:
    """GPT-2's c_attn holds (in, out): the mask is that of an `nn.Linear` with the transposed weight."""
    conv = linear_module(tiny("gpt2").model, "transformer.h.0.attn.c_attn")
    given: Tensor = conv.weight.detach()  # type: ignore[operator, assignment, union-attr]
    linear = nn.Linear(given.shape[0], given.shape[1], bias=False)
    linear.weight = nn.Parameter(given.t().contiguous())
    found, wanted = made(out_in(conv), pattern), made(out_in(linear), pattern)
    assert torch.equal(found.mask, wanted.mask)
    assert torch.equal(found.values, wanted.values)
    if pattern.m or pattern.scope == "row":  # the mutation: the weight as it lies
        assert not torch.equal(made(given, pattern).mask.t(), wanted.mask)
