"""Masks as bits and values as bytes: there and back, the order of bits, and what a byte may not hide."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lab.errors import BadInput
from lab.pruning.mask_bits import (
    LONGEST,
    ZERO,
    Viewport,
    differences,
    kept_per_row,
    pack_mask,
    unpack_mask,
    value_bytes,
)


def mask_of(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.5


@given(st.integers(0, 9), st.integers(0, 40), st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_there_and_back(rows: int, columns: int, seed: int) -> None:
    mask, other = mask_of(rows, columns, seed), mask_of(rows, columns, seed + 1)
    bits = pack_mask(mask)
    assert bits.shape == (rows, math.ceil(columns / 8))
    assert torch.equal(unpack_mask(bits, columns), mask)
    assert torch.equal(kept_per_row(bits), mask.sum(dim=1))
    first, second = differences(bits, pack_mask(other))
    assert torch.equal(unpack_mask(first, columns), mask & ~other)
    assert torch.equal(unpack_mask(second, columns), other & ~mask)
    assert int(kept_per_row(first).sum()) == int((mask & ~other).sum())  # no bits beyond the last column


def test_the_lowest_bit_comes_first() -> None:
    mask = torch.zeros(2, 11, dtype=torch.bool)
    mask[0, 0] = mask[0, 9] = mask[1, 7] = True
    bits = pack_mask(mask)
    assert bits.tolist() == [[1, 2], [128, 0]]
    for row in range(2):
        for column in range(11):
            assert bool(bits[row, column >> 3] >> (column & 7) & 1) == bool(mask[row, column])
    assert np.packbits(mask.numpy(), axis=1).tolist() != bits.tolist()  # the mutation: the highest bit first


def test_a_mask_that_lies_otherwise_and_its_size() -> None:
    mask = mask_of(576, 1536)
    assert torch.equal(unpack_mask(pack_mask(mask.t()), 576), mask.t())
    assert pack_mask(mask).numel() == 576 * 1536 // 8


def test_bad_bits_are_refused() -> None:
    with pytest.raises(BadInput, match="truth values"):
        pack_mask(torch.ones(2, 2))
    with pytest.raises(BadInput, match="truth values"):
        pack_mask(torch.ones(2, dtype=torch.bool))
    bits = pack_mask(mask_of(2, 11))
    for columns in (8, 17, -1):
        with pytest.raises(BadInput, match="Rows of 2 bytes"):
            unpack_mask(bits, columns)
    with pytest.raises(BadInput, match="cannot be compared"):
        differences(bits, pack_mask(mask_of(3, 11)))
    with pytest.raises(BadInput, match="rows of bytes"):
        kept_per_row(torch.ones(2, 2))


@pytest.mark.parametrize("spacing", ["log", "linear"])
def test_levels_are_as_near_as_their_spacing(spacing: str) -> None:
    values = torch.randn(300, 200, generator=torch.Generator().manual_seed(0)).bfloat16()
    values[7] = 0
    values[8] = 1e-30
    given = values.clone().requires_grad_()  # as a model has it
    view = Viewport(3, 5, 100, LONGEST)
    found = value_bytes(given, view, spacing=spacing)  # type: ignore[arg-type]
    part = values[3:103, 5:].float()
    assert found.levels.shape == part.shape == (100, 195)
    assert found.levels.dtype == torch.uint8
    assert torch.equal(found.levels == ZERO, part == 0)  # a small value is no zero
    assert torch.equal(found.decode().sign(), part.sign())
    assert found.largest == float(values.float().abs().max())
    after = found.decode()
    if spacing == "linear":
        near = part.abs() >= found.largest / 127
        assert float((after - part)[near].abs().max()) <= found.largest / 127 / 2 * 1.001
    else:
        near = part.abs() >= found.largest * 1e-4
        assert float((after / part)[near].log10().abs().max()) <= 4 / 126 / 2 * 1.001
    assert int(found.levels.max()) <= 255
    assert int(found.levels.min()) >= 1


def test_a_viewport_that_moves_keeps_its_scale() -> None:
    values = torch.tensor([[1.0, -0.01], [100.0, 0.0]])
    top = value_bytes(values, Viewport(0, 0, 1, 2))
    assert top.largest == 100
    assert top.levels[0, 0] < 255
    alone = value_bytes(values[:1], Viewport(0, 0, 1, 2))  # the mutation: the largest of the part
    assert alone.levels[0, 0] == 255
    ends = value_bytes(values, Viewport(1, 0, 1, 1), largest=1.0)
    assert int(ends.levels) == 255


def test_zeros_alone() -> None:
    found = value_bytes(torch.zeros(3, 3), Viewport(0, 0, 2, 2))
    assert (found.levels == ZERO).all()
    assert (found.decode() == 0).all()


def test_bad_viewports_are_refused() -> None:
    values = torch.ones(4, 4)
    for bad in ((0, 0, LONGEST + 1, 1), (0, 0, 1, 0), (-1, 0, 1, 1)):
        with pytest.raises(BadInput, match="viewport"):
            Viewport(*bad)
    with pytest.raises(BadInput, match="outside a matrix of 4 x 4"):
        value_bytes(values, Viewport(4, 0, 1, 1))
    with pytest.raises(BadInput, match="no spacing 'cube'"):
        value_bytes(values, Viewport(0, 0, 1, 1), spacing="cube")  # type: ignore[arg-type]
    for limits in ({"decades": 0.0}, {"largest": 0.0}, {"largest": float("inf")}, {"decades": float("nan")}):
        with pytest.raises(BadInput, match="cannot be laid out"):
            value_bytes(values, Viewport(0, 0, 1, 1), **limits)
    with pytest.raises(BadInput, match="cannot be laid out"):
        value_bytes(torch.full((2, 2), float("nan")), Viewport(0, 0, 1, 1))
