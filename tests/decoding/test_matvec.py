"""One token through a matrix: blocks, joins, overlays."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lab.decoding.matvec import Called, MatVec, is_plain, matvecs


@given(
    rows=st.integers(1, 300),
    columns=st.sampled_from([1, 3, 64, 1100]),
    bias=st.booleans(),
    add=st.booleans(),
    transposed=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_products_equal_linear(rows: int, columns: int, bias: bool, add: bool, transposed: bool) -> None:
    weight = torch.randn(columns, rows).t() if transposed else torch.randn(rows, columns)
    offset = torch.randn(rows) if bias else None
    x, y = torch.randn(columns), torch.randn(rows)
    expected = torch.nn.functional.linear(x, weight, offset) + (y if add else 0)
    with torch.inference_mode():
        MatVec(weight, offset, x, y, add=add)()
    torch.testing.assert_close(y, expected, atol=1e-3, rtol=1e-4)


def test_what_is_not_plain_is_called() -> None:
    plain, hooked = nn.Linear(4, 6, bias=False), nn.Linear(4, 6, bias=False)
    hooked.register_forward_pre_hook(lambda module, args: (args[0] * 2,))  # noqa: ARG005
    assert is_plain(plain)
    assert not is_plain(hooked)
    x, y = torch.randn(4), torch.zeros(12)
    with torch.inference_mode():
        products = matvecs([plain, hooked], x, y)
        for product in products:
            product()
    assert [type(p) for p in products] == [MatVec, Called]
    torch.testing.assert_close(y, torch.cat((plain.weight @ x, 2 * hooked.weight @ x)).detach())


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_changes_no_result(threads: int) -> None:
    before = torch.get_num_threads()
    weight, x = torch.randn(64, 2048), torch.randn(2048)
    y = torch.empty(64)
    try:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            MatVec(weight, None, x, y)()
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(y, weight @ x, atol=1e-3, rtol=1e-4)
