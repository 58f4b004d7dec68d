"""Generators of steps: run to the end, and told otherwise."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from lab.steps import finished, paused, relay


def counting(closed: list[bool], fails_at: int = -1) -> Generator[int, None, str]:
    try:
        for step in range(3):
            if step == fails_at:
                raise ValueError("as the steps had it")
            yield step
        return "done"
    finally:
        closed.append(True)


def test_relay_tells_each_step_and_hands_on_the_result() -> None:
    told: list[int] = []
    result: list[str] = []

    def outer() -> Generator[int, None, None]:
        result.append((yield from relay(counting([]), lambda step: 10 * step)))

    told += outer()
    assert (told, result) == ([0, 10, 20], ["done"])
    assert finished(relay(counting([]), paused)) == "done"
    assert list(relay(counting([]), paused)) == [None, None, None]


def test_relay_closes_its_steps_when_it_is_left() -> None:
    closed: list[bool] = []
    steps = counting(closed)
    told = relay(steps, paused)
    next(told)
    assert not closed
    told.close()
    assert closed == [True]


def test_what_the_steps_raise_comes_through() -> None:
    with pytest.raises(ValueError, match="as the steps had it"):
        list(relay(counting([], fails_at=1), paused))
