"""The steps of a training in words: one that is only measured, where the training ended, is no further step."""

from __future__ import annotations

import math

from lab.events.lora import TrainStep
from widgets.training_steps import best_of, so_far, step_figure, step_table


def step(number: int, **values: float | None) -> TrainStep:
    given = {"loss": 2.0, "heldout_loss": None, "ms": 100.0 * number, "best": False, **values}
    return TrainStep(step=number, steps=40, learning_rate=1e-3, tokens=64, **given)  # type: ignore[arg-type]


STEPS = [step(0, loss=math.nan, heldout_loss=3.0, ms=0.0, best=True), step(1), step(2)]
MEASURED = step(2, loss=math.nan, heldout_loss=2.5, ms=math.nan, best=True)


def test_a_measure_at_the_end_takes_no_time_of_a_step() -> None:
    plain, ended = step_figure(STEPS), step_figure([*STEPS, MEASURED])
    assert ended == plain
    assert plain["note"] == "2 steps so far"
    assert step_figure([*STEPS, step(2, ms=0.0)]) != plain  # the mutation: a time of 0 would count


def test_the_step_that_it_measured_is_the_best_and_the_last() -> None:
    assert best_of([*STEPS, MEASURED]) is MEASURED
    words = so_far([*STEPS, MEASURED], "answer tokens", "that adapter is kept")
    assert words.startswith("2 of 40 steps, 64 answer tokens in the last")
    assert "least held-out loss, after step 2; that adapter is kept" in words


def test_the_table_has_a_row_for_it() -> None:
    table = step_table("steps", [*STEPS, MEASURED], "answer tokens")
    assert table.rows[-1][:3] == [2, None, 2.5]
    assert table.rows[-1][-2:] == ["yes", None]
