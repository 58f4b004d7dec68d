"""The plain-Python reference of the proof, and that each thing it looks for is seen."""

from __future__ import annotations

import math
import struct
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.experiments.quantization.checked import Checked
from lab.experiments.quantization.mistakes import broken
from lab.experiments.quantization.reference import (
    NF4,
    Group,
    as_float32,
    in_format,
    wrong_distance,
    wrong_nf4,
    wrong_scale,
)
from lab.quantization.affine import AffineWeight
from lab.quantization.grid import Grid, Kind
from lab.quantization.nearest import Nearest
from lab.quantization.nf4 import Nf4, Nf4Weight
from lab.steps import finished

WEIGHT = torch.randn(24, 96, generator=torch.Generator().manual_seed(3)) * 0.1


def made_on(grid: Grid, weight: torch.Tensor = WEIGHT) -> AffineWeight:
    made = finished(Nearest(grid).quantize(weight))
    assert isinstance(made, AffineWeight)
    return made


def checked(weight: torch.Tensor, made: AffineWeight, runs: torch.Tensor) -> Checked:
    found = Checked(0, torch.float32)
    found.settle(found.grid_samples("layer 0", weight, made, nearest=True, whole_range=True), runs)
    return found


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("share", [16, 64, "row", "tensor"])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_what_nearest_gives_is_what_plain_python_gives(kind: Kind, share: int, bits: int) -> None:
    grid = Grid(bits, kind, share, ragged=True)  # type: ignore[arg-type]
    made = made_on(grid)
    found = checked(WEIGHT, made, made.dequantize())
    assert found.words == ""
    assert found.right == found.groups > 0


@pytest.mark.parametrize("mistake", ["neighbour_scales", "codes_off_by_one", "nibbles_swapped", "missing_abs"])
@pytest.mark.parametrize("share", [32, "row"])
def test_each_mistake_is_seen(mistake: str, share: int) -> None:
    made = made_on(Grid(4, "absmax", share))  # type: ignore[arg-type]
    wrong, runs = broken(made, WEIGHT, mistake)  # type: ignore[arg-type]
    found = checked(WEIGHT, wrong, runs)
    assert found.right < found.groups
    assert "layer 0, row" in found.words


def test_one_group_of_one_matrix_is_enough_to_be_seen_where_it_is_looked_at() -> None:
    grid = Grid(4, "absmax", 32)
    made = made_on(grid)
    runs = made.dequantize()
    found = Checked(0, torch.float32)
    samples = found.grid_samples("m", WEIGHT, made, nearest=True, whole_range=True)
    place = int(samples[2].where[5])
    runs.view(-1)[place] += 1e-3
    found.settle(samples, runs)
    assert found.right == found.groups - 1


def group(before: list[float], codes: list[int], scale: float, after: list[float]) -> Group:
    return Group(before, codes, scale, None, after, min(before), max(before))


def test_a_scale_that_does_not_cover_an_all_negative_group_is_seen() -> None:
    grid = Grid(4, "absmax", "row", scale_format="float32")
    right = group([-0.7, -0.1], [-7, -1], 0.1, [-0.7, -0.1])
    assert wrong_scale(right, grid) == ""
    assert "ask for a scale" in wrong_scale(group([-0.7, -0.1], [0, 0], 0.0, [0, 0]), grid)
    assert "further than s/2" in wrong_distance(group([-0.7, -0.1], [-7, -2], 0.1, [-0.7, -0.2]), grid)


def test_nf4_blocks() -> None:
    made = finished(Nf4().quantize(WEIGHT))
    assert isinstance(made, Nf4Weight)
    found = Checked(0, torch.float32)
    samples = found.nf4_samples("m", WEIGHT, made)
    found.settle(samples, made.dequantize())
    assert found.right == found.groups == 6
    found.settle(samples, made.dequantize() * 1.001)
    assert found.right == 6
    block = [0.5, -1.0, 0.0]
    right = [12, 0, 7]
    assert wrong_nf4(group(block, right, 1.0, [NF4[c] for c in right])) == ""
    assert "not the nearest" in wrong_nf4(group(block, [11, 0, 7], 1.0, [NF4[11], -1.0, 0.0]))
    assert "largest |w|" in wrong_nf4(group(block, right, 0.9, [0.9 * NF4[c] for c in right]))


NAMES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
FP8 = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}


@given(st.floats(-400.0, 400.0, width=32))
@settings(max_examples=300, deadline=None)
def test_formats_are_those_of_torch(value: float) -> None:
    for name, dtype in {**NAMES, **FP8}.items():
        assert in_format(value, name) == float(torch.tensor(value, dtype=torch.float32).to(dtype).float()), name


@given(st.floats(allow_nan=False, allow_infinity=False, width=16))
@settings(max_examples=200, deadline=None)
def test_numbers_of_a_format_stay(value: float) -> None:
    assert in_format(value, "float16") == value
    assert math.copysign(1, in_format(value, "float16")) == math.copysign(1, value)


def test_beyond_the_range_a_number_is_the_largest() -> None:
    assert in_format(1e6, "float8_e4m3fn") == 448.0
    assert in_format(-1e9, "float16") == -65504.0


def test_float32_is_structs() -> None:
    assert as_float32(0.1) == struct.unpack("<f", struct.pack("<f", 0.1))[0] != 0.1
