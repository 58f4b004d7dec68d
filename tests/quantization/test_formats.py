"""Number formats: their figures against torch's, what numbers become, and casts of whole matrices."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from lab.errors import BadInput
from lab.quantization.formats import FORMATS, Became, Cast, FormatName, Scaling, became, table
from lab.quantization.grid import Grid
from lab.quantization.method import Method
from lab.quantization.nearest import Nearest
from lab.steps import finished

FLOATING = [name for name in FORMATS if name != "int8"]


def matrix() -> Tensor:
    return torch.randn(24, 96, generator=torch.Generator().manual_seed(5)) * 0.05


def test_the_formats_are_all_there() -> None:
    assert set(FORMATS) == set(get_args(FormatName))
    assert [form.bits for form in FORMATS.values()] == [16, 16, 8, 8, 8]


@pytest.mark.parametrize("name", FLOATING)
def test_range_and_precision_are_torch_s(name: FormatName) -> None:
    form, info = FORMATS[name], torch.finfo(getattr(torch, name))
    assert (form.largest, form.smallest_normal, form.bits) == (info.max, info.smallest_normal, info.bits)
    assert form.relative_precision == info.eps / 2
    assert 1 + form.exponent_bits + form.mantissa_bits == form.bits
    kind = torch.int16 if form.bits == 16 else torch.uint8
    assert float(torch.tensor(1, dtype=kind).view(getattr(torch, name)).float()) == form.smallest


@pytest.mark.parametrize("name", FLOATING)
def test_every_number_of_a_format_stays_what_it_is(name: FormatName) -> None:
    form = FORMATS[name]
    count = 2**form.bits
    codes = torch.arange(count, dtype=torch.int32)
    narrow = codes.to(torch.int16 if form.bits == 16 else torch.uint8).view(getattr(torch, name)).float()
    numbers = narrow[torch.isfinite(narrow)].view(1, -1)
    assert torch.equal(finished(Cast(name).quantize(numbers)).dequantize(), numbers)
    # and what lies between two goes to the nearer one
    ordered = numbers[0].unique()
    ordered = ordered[(ordered.abs() < form.largest / 4) & (ordered.abs() > form.smallest_normal)]
    for near in (0.25, 0.75):
        between = ordered[:-1] + (ordered[1:] - ordered[:-1]) * near
        nearest = ordered[:-1] if near < 0.5 else ordered[1:]
        inside = ordered[:-1].sign() == ordered[1:].sign()
        assert torch.equal(finished(Cast(name).quantize(between.view(1, -1))).dequantize()[0][inside], nearest[inside])


def one(value: float, name: FormatName, largest: float | None = None) -> Became:
    found = became(value, name, largest)
    assert found.value == value
    return found


def test_what_a_number_becomes() -> None:
    assert one(0.1, "bfloat16").became == pytest.approx(0.10009765625, abs=0)
    assert one(0.1, "float16").became == pytest.approx(0.0999755859375, abs=0)
    assert one(0.1, "float8_e4m3fn").became == 0.1015625
    assert one(0.1, "float8_e5m2").became == 0.09375
    assert one(0.1, "int8", largest=1.27).became == pytest.approx(0.1)
    assert one(0.104, "int8", largest=1.27).became == pytest.approx(0.1)
    assert one(-2.0, "int8", largest=1.27).saturated
    assert one(-2.0, "int8", largest=1.27).became == pytest.approx(-1.27)
    big = one(1e5, "float16")
    assert (big.became, big.saturated, big.underflowed) == (65504.0, True, False)
    assert not one(1e5, "bfloat16").saturated
    assert one(449.0, "float8_e4m3fn").became == 448.0
    assert not one(449.0, "float8_e4m3fn").saturated  # rounding alone brings it there
    assert one(500.0, "float8_e4m3fn").saturated
    small = one(1e-8, "float16")
    assert (small.became, small.underflowed, small.relative_error) == (0.0, True, 1.0)
    assert one(0.0, "int8").relative_error is None
    rows = table((0.4, -1.2))
    assert len(rows) == 2
    assert [cell.form for cell in rows[0]] == list(FORMATS)
    assert rows[1][-1].became == pytest.approx(-1.2)  # int8's scale is that of the largest


@pytest.mark.parametrize("name", FLOATING)
def test_relative_precision_is_kept(name: FormatName) -> None:
    form = FORMATS[name]
    assert form.relative_precision is not None
    values = torch.linspace(1, 2, 1001).view(1, -1)
    relative = ((finished(Cast(name).quantize(values)).dequantize() - values) / values).abs()
    assert float(relative.max()) <= form.relative_precision
    assert float(relative.max()) > form.relative_precision * 0.6  # it is no looser bound than need be


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("scaling", ["none", "row", "tensor"])
def test_a_matrix_is_cast(name: FormatName, scaling: Scaling) -> None:
    if name == "int8" and scaling == "none":
        with pytest.raises(BadInput, match="need a scale"):
            Cast(name, scaling)
        return
    weight = matrix()
    weight[3] = 0
    method: Method = Cast(name, scaling)
    made = finished(method.quantize(weight))
    after = made.dequantize()
    assert torch.isfinite(after).all()
    assert float(after[3].abs().max()) == 0
    if scaling == "none":
        assert torch.equal(after, weight.to(getattr(torch, name)).float())
    assert not made.tensors()["codes"].dtype.is_floating_point
    scales = {"none": 0, "row": 24, "tensor": 1}[scaling]
    assert made.storage.bits == FORMATS[name].bits * 24 * 96 + 32 * scales
    if scaling != "none":
        assert float((after.abs().amax(1) - weight.abs().amax(1)).abs().max()) < 0.01 if scaling == "row" else True


def test_int8_by_row_is_round_to_nearest_with_8_bits() -> None:
    weight = matrix()
    grid = Grid(8, "absmax", "row", scale_format="float32")
    nearest = finished(Nearest(grid).quantize(weight)).dequantize()
    assert torch.equal(finished(Cast("int8", "row").quantize(weight)).dequantize(), nearest)


def test_a_scale_saves_small_weights_of_fp8() -> None:
    weight = matrix() * 1e-3

    def error(scaling: Scaling) -> float:
        return float((finished(Cast("float8_e4m3fn", scaling).quantize(weight)).dequantize() - weight).square().mean())

    assert error("row") <= error("tensor") < error("none") / 100


def test_what_is_beyond_a_range_is_counted() -> None:
    weight = matrix()
    weight[0, :3] = torch.tensor([1e5, -1e5, 65504.0])
    made = finished(Cast("float16").quantize(weight))
    assert made.notes == ("2 weights beyond 65504 became that.",)
    assert float(made.dequantize()[0, 1]) == -65504.0
    assert finished(Cast("bfloat16").quantize(weight)).notes == ()
    assert finished(Cast("float16", "row").quantize(weight)).notes == ()


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="no number format"):
        became(1.0, "float4")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no scaling"):
        Cast("float16", "column")  # type: ignore[arg-type]
    for bad in (math.nan, math.inf, 1e300):
        with pytest.raises(BadInput, match="no number that fp32 holds"):
            became(bad, "float16")
    with pytest.raises(BadInput, match="above 0"):
        became(1.0, "int8", -1.0)
    weight = matrix()
    weight[2, 3] = math.inf
    with pytest.raises(BadInput, match="row 2, column 3"):
        finished(Cast("float16").quantize(weight))
