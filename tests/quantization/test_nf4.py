"""NF4: its table, its codes against bitsandbytes', its blocks, its storage."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from golden.make_nf4 import CASES, FILE, exact_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import Tensor

from lab.errors import BadInput
from lab.quantization.bit_packing import pack_codes, unpack_codes
from lab.quantization.double_quant import DoubleQuantized, double_quantize, dynamic_map
from lab.quantization.nf4 import BLOCKS, PIECE, Nf4, Nf4Weight, encode
from lab.quantization.nf4_levels import levels
from lab.quantization.normal_float import OUTERMOST, normal_float_borders, normal_float_levels
from lab.steps import finished

PUBLISHED = (
    -1.0,
    -0.6961928,
    -0.52507305,
    -0.39491749,
    -0.28444138,
    -0.18477343,
    -0.09105004,
    0.0,
    0.0795803,
    0.1609302,
    0.2461123,
    0.33791524,
    0.44070983,
    0.562617,
    0.72295684,
    1.0,
)


def nf4(weight: Tensor, block: int = 64, double_quant: bool = False) -> Nf4Weight:
    made = finished(Nf4(block, double_quant).quantize(weight))
    assert isinstance(made, Nf4Weight)
    return made


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.02


def from_scipy(outermost: float = OUTERMOST) -> list[float]:
    positive = [norm.ppf(outermost + (0.5 - outermost) * i / 8) for i in range(8)]
    negative = [-norm.ppf(outermost + (0.5 - outermost) * i / 7) for i in range(7)]
    return [value / positive[0] for value in [*negative, 0.0, *reversed(positive)]]


def test_the_table_is_the_published_one_and_scipys() -> None:
    table = normal_float_levels().tolist()
    assert table == pytest.approx(PUBLISHED, abs=1e-6)
    assert table == pytest.approx(from_scipy(), abs=1e-7)
    assert table == sorted(table)
    assert table[7] == 0.0


def test_another_outermost_probability_is_told() -> None:
    assert normal_float_levels().tolist() != pytest.approx(from_scipy(0.97), abs=1e-4)


GOLDEN: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="ascii"))["cases"]


def numbers(texts: list[str]) -> Tensor:
    return torch.tensor([float.fromhex(text) for text in texts])


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['rows']}x{case['columns']}-{case['block']}")
def test_codes_are_those_of_bitsandbytes(case: dict[str, Any]) -> None:
    w = exact_weights(case["rows"], case["columns"], case["seed"])
    made = nf4(w, case["block"], "magnitude_codes" in case)
    assert bytes(made.packed().tolist()).hex() == case["packed"]
    if isinstance(made.magnitudes, DoubleQuantized):
        assert torch.equal(made.magnitudes.scales, numbers(case["magnitude_scales"]))
        assert float(made.magnitudes.mean) == pytest.approx(float.fromhex(case["magnitude_mean"]), rel=1e-6)
        theirs = torch.tensor(list(bytes.fromhex(case["magnitude_codes"])))
        assert_never_farther(nf4(w, case["block"]), made.magnitudes, theirs)
    else:
        assert torch.equal(made.magnitudes, numbers(case["magnitudes"]))


def assert_never_farther(single: Nf4Weight, double: DoubleQuantized, theirs: Tensor) -> None:
    """bitsandbytes' kernel finds the nearest of 256 numbers but for near ties (2 in 1,000); ours always does."""
    scales = double.scales.repeat_interleave(256)[: theirs.numel()]
    wanted = (single.block_magnitudes() - double.mean) / scales
    mine, other = ((dynamic_map()[codes.long()] - wanted).abs() for codes in (double.codes, theirs))
    assert (mine <= other + 1e-6).all()
    assert (other - mine).max() < 4e-5
    assert (double.codes.long() != theirs).double().mean() < 0.02


def test_the_golden_file_has_all_cases() -> None:
    assert [(c["rows"], c["columns"], c["block"], "magnitude_codes" in c) for c in GOLDEN] == list(CASES)


@pytest.mark.parametrize("mutation", ["blocks from each row", "swapped nibbles", "no abs"])
def test_a_usual_mistake_is_told_from_bitsandbytes(mutation: str) -> None:
    case = GOLDEN[1]  # rows of 33 in blocks of 64
    w = exact_weights(case["rows"], case["columns"], case["seed"])
    if mutation == "blocks from each row":
        codes = torch.cat([encode(row, 64)[0] for row in w])
    elif mutation == "swapped nibbles":
        good = nf4(w).packed()
        codes = unpack_codes((good << 4) | (good >> 4), 4, w.numel())
    else:
        flat = torch.nn.functional.pad(w.flatten(), (0, -w.numel() % 64)).view(-1, 64)
        scaled = flat / flat.amax(dim=1, keepdim=True).clamp(min=1e-30)
        codes = torch.bucketize(scaled.flatten()[: w.numel()], normal_float_borders())
    assert pack_codes(torch.cat((codes.to(torch.uint8), torch.tensor([7], dtype=torch.uint8))), 4).tolist() != list(
        bytes.fromhex(case["packed"])
    )


@pytest.mark.parametrize("shape", [(96, 576), (101, 33), (64, 1536)])
@pytest.mark.parametrize("double_quant", [False, True])
def test_live_against_bitsandbytes(shape: tuple[int, int], double_quant: bool) -> None:
    functional = pytest.importorskip("bitsandbytes.functional", reason="the extra `oracles` is not installed")
    w = randn(*shape, seed=3)
    packed, state = functional.quantize_4bit(w, quant_type="nf4", compress_statistics=double_quant)
    made = nf4(w, 64, double_quant)
    assert torch.equal(made.packed(), packed.flatten())
    if isinstance(made.magnitudes, DoubleQuantized):
        assert torch.equal(dynamic_map(), functional.create_dynamic_map())
        assert_never_farther(nf4(w), made.magnitudes, state.absmax)
    else:
        assert torch.equal(made.magnitudes, state.absmax)
        assert (made.dequantize() - functional.dequantize_4bit(packed, state)).abs().max() < 1e-7


@pytest.mark.parametrize("block", BLOCKS)
def test_levels_times_a_magnitude_come_back_exactly(block: int) -> None:
    random = torch.Generator().manual_seed(block)
    codes = torch.randint(0, 16, (3, block), generator=random)
    codes[:, 0] = 15  # each block reaches its magnitude
    magnitude = torch.tensor([[2.0], [0.03125], [1.0]])
    made = nf4(normal_float_levels()[codes] * magnitude, block)
    assert torch.equal(made.codes.long(), codes)
    assert torch.equal(made.dequantize(), normal_float_levels()[codes] * magnitude)


@given(rows=st.integers(1, 9), columns=st.integers(1, 150), block=st.sampled_from(BLOCKS[:3]), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_each_weight_takes_the_nearest_level(rows: int, columns: int, block: int, seed: int) -> None:
    w = randn(rows, columns, seed=seed)
    made = nf4(w, block)
    flat, magnitudes = w.flatten(), made.block_magnitudes()
    assert magnitudes.numel() == math.ceil(w.numel() / block)
    mine = magnitudes.repeat_interleave(block)[: flat.numel()]
    all_levels = normal_float_levels() * mine[:, None]
    least = (all_levels - flat[:, None]).abs().amin(dim=1)
    assert torch.allclose((made.dequantize().flatten() - flat).abs(), least, rtol=1e-4, atol=1e-9)
    assert torch.equal(unpack_codes(made.packed(), 4, w.numel()), made.codes.flatten())


def test_a_tie_goes_to_the_lower_level() -> None:
    borders = normal_float_borders()
    codes, magnitudes = encode(torch.cat((borders, torch.ones(1))), 64)
    assert codes.tolist() == [*range(15), 15]
    assert magnitudes.tolist() == [1.0]
    above, _ = encode(torch.cat((torch.nextafter(borders, torch.ones(15)), torch.ones(1))), 64)
    assert above.tolist() == [*range(1, 16), 15]


@pytest.mark.parametrize("tiny", [0.0, -0.0, 1e-39, 1e-45])
def test_zero_and_subnormal_blocks_become_zero(tiny: float) -> None:
    w = randn(4, 64)
    w[1], w[3, 5:] = tiny, 0.0
    for double_quant in (False, True):
        made = nf4(w, 64, double_quant)
        back = made.dequantize()
        assert back.isfinite().all()
        assert back[1].tolist() == [0.0] * 64
        assert made.codes[1].unique().tolist() == [7]
        assert made.notes == ("1 of 4 blocks are zero",)
    assert not nf4(torch.full((2, 64), 1e-30)).notes  # small, but no number that lost its bits
    assert nf4(torch.full((2, 64), 1e-30)).dequantize() == pytest.approx(1e-30, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_named(bad: float) -> None:
    w = randn(4, 64)
    w[2, 7] = bad
    with pytest.raises(BadInput, match="row 2, column 7"):
        nf4(w)


@pytest.mark.parametrize("block", [0, 16, 63, 8192, True])
def test_a_wrong_block_is_refused(block: int) -> None:
    with pytest.raises(BadInput, match="Choose one of 32, 64"):
        Nf4(block)


def test_storage_counts_everything() -> None:
    w = randn(256, 64 * 8)  # 2,048 blocks, 8 blocks of blocks
    single, double = nf4(w).storage, nf4(w, double_quant=True).storage
    assert single.bits_per_weight == 4.5
    overhead = double.bits_per_weight - 4 - 32 / w.numel()
    assert overhead == 8 / 64 + 32 / (64 * 256)
    assert round(overhead, 3) == 0.127
    for made in (nf4(w), nf4(w, double_quant=True)):
        held = {name: t for name, t in made.tensors().items() if name != "codes"}
        counted = 4 * w.numel() + 8 * sum(t.numel() * t.element_size() for t in held.values())
        assert made.storage.bits == counted


def test_double_quantization_is_close_and_adds_the_mean_back() -> None:
    w = randn(64, 576, seed=5)
    single, double = nf4(w), nf4(w, double_quant=True)
    assert torch.equal(single.codes, double.codes)
    assert isinstance(double.magnitudes, DoubleQuantized)
    plain, back = single.block_magnitudes(), double.block_magnitudes()
    # a step of the map is at most .014 of a block's largest rest
    assert ((plain - back).abs() <= 0.0071 * double.magnitudes.scales.repeat_interleave(256)[:576] * 1.01).all()
    forgotten = back - double.magnitudes.mean
    assert (plain - forgotten).abs().min() > 0.01


def test_double_quantization_never_turns_a_sign() -> None:
    magnitudes = torch.full((256,), 1.0)
    magnitudes[:3] = torch.tensor([1e-4, 0.0, 0.002])
    back = double_quantize(magnitudes).dequantize()
    assert (back >= 0).all()
    assert double_quantize(torch.full((5,), 0.3)).dequantize() == pytest.approx(0.3)


def test_the_dynamic_map() -> None:
    numbers_ = dynamic_map()
    assert numbers_.shape == (256,)
    assert (numbers_.diff() > 0).all()
    assert float(numbers_[-1]) == 1.0
    assert float(numbers_[numbers_ > 0].min()) == pytest.approx(0.55e-6)


def test_a_large_matrix_pauses_and_is_the_same_as_in_one_piece() -> None:
    w = randn(1025, 1088)
    steps = list(Nf4().quantize(w))
    assert len(steps) == math.ceil(w.numel() / PIECE) == 2
    assert steps[-1] == 1.0
    assert torch.equal(nf4(w).codes.flatten(), encode(w.flatten(), 64)[0])


def test_bf16_weights_and_the_weight_itself() -> None:
    w = randn(8, 64).bfloat16()
    before = w.clone()
    assert torch.equal(nf4(w).codes, nf4(w.float()).codes)
    assert torch.equal(w, before)


def test_levels_against_weights() -> None:
    w = randn(256, 576)
    shown = levels(w, bins=50)
    assert len(shown.counts) == 50
    assert sum(shown.counts) == shown.counted == shown.weights == w.numel()
    counts = torch.bincount(nf4(w).codes.flatten().int(), minlength=16)
    assert list(shown.used) == counts.tolist()
    assert sum(shown.even) == w.numel()
    # what NF4 is for: inner levels are used more evenly than evenly spaced ones
    assert max(shown.used) - min(shown.used[1:-1]) < max(shown.even) - min(shown.even[1:-1])
    with pytest.raises(BadInput, match="1 bins"):
        levels(w, bins=1)


def test_levels_of_a_large_matrix_look_at_a_part() -> None:
    shown = levels(randn(2048, 1024))
    assert shown.counted == sum(shown.counts) <= 1 << 20
    assert shown.weights == 2048 * 1024


@given(bits=st.sampled_from([2, 4, 8]), count=st.integers(0, 40), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_codes_pack_and_come_back(bits: int, count: int, seed: int) -> None:
    codes = torch.randint(0, 1 << bits, (3, count), generator=torch.Generator().manual_seed(seed))
    packed = pack_codes(codes, bits)
    assert packed.shape == (3, -(-count * bits // 8))
    assert torch.equal(unpack_codes(packed, bits, count).long(), codes)


def test_the_first_code_lies_in_the_high_bits() -> None:
    assert pack_codes(torch.tensor([1, 2, 3]), 4).tolist() == [0x12, 0x30]
    assert pack_codes(torch.tensor([0, 1, 2, 3]), 2).tolist() == [0b00011011]
    with pytest.raises(BadInput, match="3 bits"):
        pack_codes(torch.tensor([1]), 3)
    with pytest.raises(BadInput, match="do not lie in 1 bytes"):
        unpack_codes(torch.zeros(1, dtype=torch.uint8), 4, 3)
