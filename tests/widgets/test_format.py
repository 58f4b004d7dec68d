"""Numbers as a person reads them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widgets.format import (
    NOTHING,
    format_bytes,
    format_count,
    format_ms,
    format_number,
    format_rate,
    format_ratio,
    format_share,
    split_bytes,
    split_ms,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (46_080, "45.0 KiB"),
        (98_304, "96.0 KiB"),
        (1_048_064, "1.00 MiB"),
        (2_949_120, "2.81 MiB"),
        (1024**3, "1.00 GiB"),
        (4 * 1024**3, "4.00 GiB"),
        (513.2 * 1024**2, "513 MiB"),
        (-46_080, "-45.0 KiB"),
        (1024**6, "1,024 PiB"),
        (None, NOTHING),
        (math.nan, NOTHING),
        (math.inf, NOTHING),
    ],
)
def test_bytes(count: float | None, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (0.05, "50.0 µs"),
        (0.0999, "0.0999 ms"),
        (41.234, "41.2 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (61_000, "61.0 s"),
        (180_000, "3.00 min"),
        (None, NOTHING),
    ],
)
def test_ms(ms: float | None, text: str) -> None:
    assert format_ms(ms) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (9.999, "10.0"), (99.95, "100"), (0.000123, "0.000123"), (500_500, "500,500"), (1e-7, "1.00e-07")],
)
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_others() -> None:
    assert format_count(500_500) == "500,500"
    assert format_count(math.inf) == NOTHING
    assert format_rate(24.83) == "24.8 tokens/s"
    assert format_rate(None) == NOTHING
    assert format_ratio(3.38) == "3.4 ×"
    assert [format_share(x) for x in (0, 0.784, 0.0312, 1, None)] == ["0 %", "78 %", "3.1 %", "100 %", NOTHING]
    assert split_ms(41.234) == ("41.2", "ms")


@given(st.integers(0, 2**55))
def test_bytes_are_right_to_half_a_unit_in_the_third_digit(count: int) -> None:
    value, unit = split_bytes(count)
    power = ("B", "KiB", "MiB", "GiB", "TiB", "PiB").index(unit)
    assert float(value.replace(",", "")) * 1024**power == pytest.approx(count, rel=0.0051)
    assert float(value.replace(",", "")) < 1024 or unit == "PiB"
