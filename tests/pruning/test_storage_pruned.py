"""Bytes of pruned matrices: against arrays that are really made, and where a format begins to pay."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from lab.errors import BadInput
from lab.pruning.magnitude import Magnitude
from lab.pruning.mask_bits import pack_mask
from lab.pruning.pattern import N_OF_M, Pattern
from lab.pruning.storage import LAYOUTS, Counted, index_bytes, store, store_all
from lab.steps import finished

BITS = {torch.float32: 32, torch.bfloat16: 16, torch.float16: 16}
BIG = Counted(name="up_proj", rows=1536, columns=576, kept=1536 * 576 // 2)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("shape", [(24, 64), (7, 13), (1, 9)])
@pytest.mark.parametrize("sparsity", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_bytes_are_those_of_real_arrays(dtype: torch.dtype, shape: tuple[int, int], sparsity: float) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0)).abs() + 0.1
    made = finished(Magnitude(Pattern(sparsity)).prune(weight))
    values, itemsize = made.values.to(dtype), torch.tensor([], dtype=dtype).element_size()
    rows = made.mask.any(dim=1)
    matrix = Counted(name="w", rows=shape[0], columns=shape[1], kept=made.kept, kept_rows=int(rows.sum()))
    found = store(matrix, BITS[dtype])
    assert found["dense"].bytes == values.numel() * itemsize  # whatever the zeros are
    assert found["bitmap"].bytes == pack_mask(made.mask).numel() + values[made.mask].numel() * itemsize
    csr = csr_matrix(made.values.numpy())
    indices, pointers = csr.indices.astype(np.int16), csr.indptr.astype(np.int32)
    assert found["csr"].bytes == csr.data.size * itemsize + indices.nbytes + pointers.nbytes
    assert found["rows"].bytes == values[rows].numel() * itemsize
    assert found["nm"].unfit
    assert found["nm"].bytes == found["dense"].bytes


@pytest.mark.parametrize(("n", "m"), N_OF_M)
@pytest.mark.parametrize("bits", [16, 32])
def test_nm_packed_holds_values_and_places(n: int, m: int, bits: int) -> None:
    weight = torch.randn(8, 32, generator=torch.Generator().manual_seed(1))
    mask = finished(Magnitude(Pattern(n=n, m=m)).prune(weight)).mask
    places = mask.view(-1, m).nonzero()[:, 1]
    each = {4: 2, 8: 3}[m]
    assert int(places.max()) < 2**each
    found = store(Counted(name="w", rows=8, columns=32, kept=int(mask.sum()), n=n, m=m), bits)["nm"]
    assert found.bytes == (len(places) * bits + len(places) * each) / 8
    # with weights that happen to be zero inside the pattern, as many bytes: the slots are there
    assert store(Counted(name="w", rows=8, columns=32, kept=0, n=n, m=m), bits)["nm"].bytes == found.bytes


def test_known_figures() -> None:
    """2:4 is 9/16 of 16 bits, as cuSPARSELt has it; a bitmap costs 1/16; CSR at half does not pay in 16 bits."""
    half = store(Counted(name="w", rows=1536, columns=576, kept=442_368, n=2, m=4), 16)
    assert half["nm"].share == 9 / 16
    assert half["bitmap"].share == 1 / 2 + 1 / 16
    assert half["csr"].share > 1
    assert half["dense"].share == 1
    assert store(BIG, 32)["csr"].share == pytest.approx(0.75 + 4 * 1537 / (4 * 884_736))


@pytest.mark.parametrize(
    ("bits", "bitmap", "csr"),
    [(32, 1 / 32, 1 / 3 + 1537 * 4 / 884_736 / 6), (16, 1 / 16, 1 / 2 + 1537 * 4 / 884_736 / 4)],
)
def test_where_a_format_begins_to_pay(bits: int, bitmap: float, csr: float) -> None:
    found = store(BIG, bits)
    assert found["bitmap"].break_even == pytest.approx(bitmap)
    assert found["csr"].break_even == pytest.approx(csr)
    assert found["rows"].break_even == 0
    assert found["dense"].break_even is None
    assert found["nm"].break_even is None


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([8, 16, 32]), st.sampled_from(["bitmap", "csr"]))
@settings(max_examples=200, deadline=None)
def test_break_even_is_where_it_turns(rows: int, columns: int, bits: int, layout: str) -> None:
    weights = rows * columns
    sizes = [
        store(Counted(name="w", rows=rows, columns=columns, kept=weights - gone), bits)[layout]  # type: ignore[index]
        for gone in range(weights + 1)
    ]
    at = sizes[0].break_even
    for gone, size in enumerate(sizes):
        assert size.break_even == at
        if at is None:
            assert size.bytes >= size.dense_bytes
        elif abs(gone / weights - at) > 1e-9:
            assert (size.bytes < size.dense_bytes) == (gone / weights > at)


def test_a_model_is_the_sum_and_what_is_dense_stays_dense() -> None:
    embedding = Counted(name="embed", rows=1000, columns=576, kept=576_000, dense="looked up")
    whole = store_all([BIG, BIG, embedding], 16)
    one, still = store(BIG, 16), store(embedding, 16)
    for layout in LAYOUTS:
        assert still[layout].bytes == 1_152_000
        assert whole[layout].bytes == 2 * one[layout].bytes + 1_152_000
        assert whole[layout].dense_bytes == 2 * one["dense"].bytes + 1_152_000
    # break-even is of the pruned matrices alone: an embedding beside them changes nothing
    assert whole["bitmap"].break_even == pytest.approx(one["bitmap"].break_even)
    assert whole["csr"].break_even == pytest.approx(one["csr"].break_even)
    assert whole["bitmap"].share > one["bitmap"].share
    assert "up_proj has no N:M pattern. So it is with 2 of 3" in whole["nm"].unfit


def test_columns_from_32768_on_take_a_wider_index() -> None:
    assert (index_bytes(32_767), index_bytes(32_768)) == (2, 4)
    wide = store(Counted(name="w", rows=1, columns=32_768, kept=10), 32)["csr"]
    assert wide.bytes == 10 * 8 + 8


def test_bad_counts_are_refused() -> None:
    for values in (
        {"rows": 0}, {"kept": -1}, {"kept": 33}, {"kept_rows": 5}, {"kept_rows": 3, "kept": 25},
    ):  # fmt: skip
        with pytest.raises(BadInput, match="cannot keep"):
            Counted(**{"name": "w", "rows": 4, "columns": 8, "kept": 8, **values})  # type: ignore[arg-type]
    for n, m in ((2, 3), (4, 4), (0, 4)):
        with pytest.raises(BadInput, match="no groups"):
            Counted(name="w", rows=4, columns=8, kept=8, n=n, m=m)
    with pytest.raises(BadInput, match="not 4"):
        store(BIG, 4)
    with pytest.raises(BadInput, match="no matrices"):
        store_all([])


def test_the_table_and_the_counts_load_no_torch() -> None:
    code = "import lab.pruning.methods, lab.pruning.storage, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
