"""Scales of powers of ten: where they begin, and what is written below them."""

from __future__ import annotations

import math

import pytest

from widgets.bar_table import Bar, BarRow, BarTable, Column
from widgets.log_scale import MOST_TICKS, log_scale
from widgets.numbers import percent


@pytest.mark.parametrize("values", [[0.00872, 0.0126, 0.567], [0.01, 0.02], [3e-9, 4e5], [7.0], [0.999e-3, 1.0]])
def test_all_values_lie_within_and_the_ticks_too(values: list[float]) -> None:
    scale = log_scale([*values, 0.0, -1.0, math.nan, math.inf])
    assert scale is not None
    assert scale.low < min(values)
    assert max(values) < scale.high
    assert 2 <= len(scale.ticks) <= MOST_TICKS
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)
    assert list(scale.ticks) == sorted(scale.ticks)


def test_the_least_has_room_of_its_own() -> None:
    near = log_scale([0.0101, 1.0])
    assert near is not None
    assert near.low == 1e-3  # at 1 % exactly it would have no length at all


def test_ticks_are_powers_of_ten_and_more_of_them_where_there_are_few() -> None:
    wide, narrow = log_scale([0.00872, 0.577]), log_scale([0.02, 0.05])
    assert wide is not None
    assert narrow is not None
    assert [percent(t) for t in wide.ticks] == ["0.100 %", "1.00 %", "10.0 %"]
    assert narrow.ticks == (0.01, 0.02, 0.05)


def test_nothing_above_0_has_no_such_scale() -> None:
    assert log_scale([0.0, -3.0, math.nan]) is None
    table = BarTable()
    table.show([BarRow("none", [Bar(0.0, 1)], ["0"])], [Column("error")], log=percent)
    assert (table.state["low"], table.state["ticks"], table.state["most"]) == (0.0, [], 1.0)
    table.show([BarRow("some", [Bar(0.1, 1)], ["10 %"])], [Column("error")], log=percent)
    assert table.state["low"] == 0.01
    table.show([BarRow("some", [Bar(0.1, 1)], ["10 %"])], [Column("error")])
    assert (table.state["low"], table.state["ticks"]) == (0.0, [])
