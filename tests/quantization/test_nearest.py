"""Round to nearest and the arithmetic it shares: bounds, traps of small and odd groups, torch's own quantizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lab.errors import BadInput
from lab.quantization.affine import Affine, AffineWeight, affine_of, decode_groups, encode_groups, grouped
from lab.quantization.grid import KINDS, Grid, Kind, ScaleFormat
from lab.quantization.method import Method
from lab.quantization.nearest import Nearest
from lab.steps import finished

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

SHARES = (16, 48, 128, 512, "row", "tensor")
FORMATS: tuple[ScaleFormat, ...] = get_args(ScaleFormat)
SYMMETRIC: tuple[Kind, ...] = ("absmax", "full_range")


def matrix(rows: int = 12, columns: int = 576, seed: int = 0, scale: float = 0.05) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * scale


def made(weight: Tensor, grid: Grid) -> AffineWeight:
    found = finished(Nearest(grid).quantize(weight))
    assert isinstance(found, AffineWeight)
    return found


def steps(found: AffineWeight) -> Tensor:
    """The scale of each weight, (rows, columns)."""
    rows, columns = found.shape
    if found.grid.share == "tensor":
        return found.affine.scale.expand(rows, columns)
    return found.affine.scale.repeat_interleave(found.grid.group_size(columns), dim=1)[:, :columns]


def within_half_a_step(weight: Tensor, found: AffineWeight) -> bool:
    levels = found.grid.highest - found.grid.lowest
    # The second part is fp32's own rounding of w, of w / s and of what is added to it.
    slack = steps(found) * levels * 2.0**-19 + weight.abs() * 2.0**-23
    return bool(((weight.float() - found.dequantize()).abs() <= steps(found) / 2 + slack).all())


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Grid]:
    grid = Grid(
        bits=draw(st.integers(2, 8)),
        kind=draw(st.sampled_from(KINDS)),
        share=draw(st.sampled_from(SHARES)),
        ragged=True,
        scale_format=draw(st.sampled_from(FORMATS)),
    )
    columns = draw(st.sampled_from([512, 576, 600]))
    offset = draw(st.sampled_from([0.0, 0.0, -3.0, 10.0]))
    weight = (matrix(5, columns, draw(st.integers(0, 10_000)), 1.0) + offset) * draw(
        st.sampled_from([1e-12, 1e-4, 0.05, 1.0, 300.0])
    )
    weight[1] *= draw(st.sampled_from([0.0, 1e-6, 1.0]))
    return weight, grid


@given(cases())
@settings(max_examples=150, deadline=None)
def test_every_weight_is_within_half_a_step(case: tuple[Tensor, Grid]) -> None:
    weight, grid = case
    before = weight.clone()
    found = made(weight, grid)
    assert within_half_a_step(weight, found)
    assert torch.equal(weight, before)
    assert int(found.codes.min()) >= grid.lowest
    assert int(found.codes.max()) <= grid.highest
    assert found.codes.dtype == torch.int16
    assert found.affine.scale.numel() == (1 if grid.share == "tensor" else 5 * grid.groups(weight.shape[1]))


def test_the_bound_tells_scales_that_are_rounded_down() -> None:
    """The mutation: with integer zero points and fp16 scales rounded to nearest, 8 bits miss the end of the range."""
    weight, missed = matrix(200, 64, scale=1.0), 0
    grid = Grid(8, "asymmetric", 64)
    found = made(weight, grid)
    assert within_half_a_step(weight, found)
    low, high = torch.aminmax(weight, dim=1, keepdim=True)
    scale = ((high - low) / 255).half().float()
    plain = Affine(scale, (-low / scale).round())
    codes = encode_groups(grouped(weight, grid), plain, grid)
    mutant = AffineWeight(grid, found.shape, codes.flatten(1).to(torch.int16), plain)
    missed = int(((weight - mutant.dequantize()).abs() > scale / 2 * 1.001).sum())
    assert missed > 0


@given(cases())
@settings(max_examples=60, deadline=None)
def test_levels_are_their_own_levels(case: tuple[Tensor, Grid]) -> None:
    weight, grid = case
    found = made(weight, grid)
    again = encode_groups(grouped(found.dequantize(), grid), found.affine, grid)
    fine = grouped(steps(found), grid) > grouped(weight.abs(), grid) * 2.0**-20  # steps that fp32 can tell apart
    assert torch.equal(again[fine], grouped(found.codes, grid)[fine])
    # A bf16 scale is rounded up by as much as 2^-7: of 8 bits the largest weight may then take code 126, not 127.
    reached = grid.scale_format == "float16" or (grid.scale_format == "bfloat16" and grid.bits < 8)
    if grid.kind == "absmax" and reached:
        assert torch.equal(made(found.dequantize(), grid).dequantize(), found.dequantize())


@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.integers(2, 8))
@settings(max_examples=30, deadline=None)
def test_groups_do_not_know_of_each_other(seed: int, kind: Kind, bits: int) -> None:
    weight, grid = matrix(4, 256, seed), Grid(bits, kind, 32)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))

    def shuffled(values: Tensor) -> Tensor:
        return values.view(4, 8, 32)[:, order].flatten(1)

    assert torch.equal(made(shuffled(weight), grid).dequantize(), shuffled(made(weight, grid).dequantize()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale_format", FORMATS)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_odd_groups(kind: Kind, scale_format: ScaleFormat, bits: int) -> None:
    weight = matrix(9, 64)
    weight[0] = 0
    weight[1] = 1e-30
    weight[2] = 0
    weight[2, 5] = 1e-42  # subnormal
    weight[3] = 0.3  # constant
    weight[4] = -weight[4].abs() - 1  # one sign
    weight[5] = torch.linspace(10, 11, 64)
    weight[6] = -1e-6
    weight[7] = 5e-3 * weight[7].sign()
    found = made(weight, Grid(bits, kind, 64, scale_format=scale_format))
    after = found.dequantize()
    assert torch.isfinite(after).all()
    assert float(after[0].abs().max()) == 0
    assert (
        float((after[1:3] - weight[1:3]).abs().max()) <= 1e-30 if scale_format != "float16" else after[1:3].eq(0).all()
    )
    assert within_half_a_step(weight, found)
    scale, tiny = found.affine.scale, torch.finfo(getattr(torch, scale_format)).tiny
    assert ((scale == 0) | (scale >= tiny)).all()
    assert float(scale[0]) == 0


def test_a_small_group_is_not_lost_to_the_format_of_its_scale() -> None:
    """0.005 at 8 bits asks for a scale below fp16's smallest normal number; it gets that one, not zero."""
    weight = torch.full((1, 64), 0.005)
    weight[0, ::2] = -0.004
    found = made(weight, Grid(8, "absmax", 64))
    assert float(found.affine.scale) == 2.0**-14
    assert float((found.dequantize() - weight).abs().max()) <= 2.0**-15
    assert "smallest normal" in found.notes[0]


def test_a_group_without_zero_keeps_zero_inside_its_range() -> None:
    """Clamping the zero point instead would bring [10, 11] back as at most 1."""
    weight = torch.linspace(10, 11, 64).view(1, 64)
    found = made(weight, Grid(4, "asymmetric", 64))
    assert float(found.affine.offset or 0) == 0
    assert float((found.dequantize() - weight).abs().max()) <= 11 / 15 / 2 * 1.01


def test_what_becomes_of_the_largest_weight_tells_the_symmetric_grids() -> None:
    weight = torch.full((1, 16), 0.1)
    weight[0, 3] = 1.5
    ends = {
        kind: float(made(weight, Grid(4, kind, 16, scale_format="float32")).dequantize()[0, 3]) for kind in SYMMETRIC
    }
    assert ends["absmax"] == pytest.approx(1.5, rel=1e-6)
    assert ends["full_range"] == pytest.approx(1.5 * 14 / 15, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    weight = matrix()
    weight[3, 70] = bad
    with pytest.raises(BadInput, match="row 3, column 70"):
        made(weight, Grid())
    huge = torch.full((2, 64), 1e300, dtype=torch.float64)
    with pytest.raises(BadInput, match="not finite"):
        made(huge, Grid())


def test_other_bad_input_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match=r"576 = 4 x 128 \+ 64") as caught:
        made(matrix(), Grid(4, "absmax", 128))
    assert all(str(size) in caught.value.remedy for size in (32, 64, 96, 192, 288))
    with pytest.raises(BadInput, match="beyond float16"):
        made(torch.full((1, 64), 3e38), Grid())
    assert torch.isfinite(
        made(torch.tensor([[3.4e38, -3.4e38] * 32]), Grid(4, "asymmetric", scale_format="float32")).affine.scale
    ).all()
    with pytest.raises(BadInput, match="no matrix"):
        made(torch.ones(64), Grid())
    with pytest.raises(BadInput, match="no matrix"):
        made(torch.ones(2, 64, dtype=torch.int32), Grid())
    for bits in (0, 1, 9, True, 4.0):
        with pytest.raises(BadInput, match="2 to 8 bits"):
            Grid(bits)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_any_floating_dtype_is_taken(dtype: torch.dtype) -> None:
    weight = matrix().to(dtype)
    assert torch.equal(made(weight, Grid()).dequantize(), made(weight.float(), Grid()).dequantize())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_torch_fake_quantize_agrees(bits: int) -> None:
    weight = matrix(16, 64)
    found = made(weight, Grid(bits, "asymmetric", "row", scale_format="float32"))
    scale, offset = found.affine.scale[:, 0], found.affine.offset
    assert offset is not None

    def theirs(high: int) -> Tensor:
        # It multiplies by 1 / s where we divide by s: the same but at ties, of which these weights have none.
        return torch.fake_quantize_per_channel_affine(weight, scale, offset[:, 0].int(), 0, 0, high)

    assert torch.equal(theirs(2**bits - 1), found.dequantize())
    assert not torch.equal(theirs(2**bits - 2), found.dequantize())  # the mutation: a level less


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_torch_quantize_per_channel_agrees() -> None:
    weight = matrix(16, 64)
    found = made(weight, Grid(8, "asymmetric", "row", scale_format="float32"))
    scale, offset = found.affine.scale[:, 0], found.affine.offset
    assert offset is not None

    def theirs(zero: Tensor) -> Tensor:
        return torch.quantize_per_channel(weight, scale.double(), zero.long(), 0, torch.quint8)

    right, wrong = theirs(offset[:, 0]), theirs(offset[:, 0] - 1)
    assert torch.equal(right.int_repr().short(), found.codes)
    assert torch.equal(right.dequantize(), found.dequantize())
    assert not torch.equal(wrong.int_repr().short(), found.codes)  # the mutation: another zero point


def test_groups_are_counted_with_all_they_take() -> None:
    weight = matrix(10, 576)
    for kind, extra in (("absmax", 16), ("asymmetric", 20), ("float_minimum", 32)):
        storage = made(weight, Grid(4, kind, 128, ragged=True)).storage  # type: ignore[arg-type]
        assert storage.bits == 4 * 5760 + extra * 10 * 5  # four groups of 128 and one of 64
    assert made(weight, Grid(3, "absmax", "tensor")).storage.bits == 3 * 5760 + 16


def test_progress_is_told_and_ends() -> None:
    shares = list(Nearest(Grid()).quantize(matrix(1000, 576)))
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert shares[-1] == 1
    method: Method = Nearest(Grid())
    assert not method.wants_inputs


def test_affine_of_a_smaller_range() -> None:
    weight = torch.linspace(10, 11, 64).view(1, 64)
    half = affine_of(weight, Grid(4, "float_minimum", 64, scale_format="float32"), 0.5)
    assert float(half.scale) == pytest.approx(0.5 / 15, rel=1e-5)
    assert float(half.offset or 0) == pytest.approx(10.25)
    codes = encode_groups(grouped(weight, Grid(4, "float_minimum", 64)), half, Grid(4, "float_minimum", 64))
    assert float(decode_groups(codes, half, Grid(4, "float_minimum", 64)).max()) == pytest.approx(10.75)


@pytest.mark.model
def test_the_packaged_model_lies_on_its_grid(packaged_model: LoadedModel) -> None:
    """Its file is Q4_1: float minimum in groups of 32 changes nothing; any other grid does (the mutations)."""
    names = [n for n, _ in packaged_model.model.named_parameters() if "_proj" in n]
    assert len(names) == 210
    for name in names:
        weight = packaged_model.model.get_parameter(name)
        assert torch.equal(made(weight, Grid(4, "float_minimum", 32)).dequantize(), weight), name
    weight = packaged_model.model.get_parameter(names[0])
    for other in (Grid(4, "float_minimum", 64), Grid(3, "float_minimum", 32), Grid(4, "asymmetric", 32)):
        assert not torch.equal(made(weight, other).dequantize(), weight)
