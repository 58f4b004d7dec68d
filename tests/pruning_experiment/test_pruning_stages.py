"""Each part of a run says which stage of how many it is; no stage goes unplanned."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest
from drained import drained
from small_pruning import SMALL

from lab.events import Event, Progress, RunFinished
from lab.experiments.base import RunContext
from lab.experiments.compared.progress import numbered
from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.run import make_runner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PART = "reading the calibration text once more"
"""Of a stage that has no number of its own."""
RUNS: list[dict[str, Any]] = [
    {"task": "masks"},
    {"task": "masks", "layers": (0, 1), "method": "sparsegpt"},
    {"task": "masks", "method": "global_magnitude", "layers": (1,)},
    {"task": "masks", "method": "magnitude"},
    {"task": "curve"},
    {"task": "words"},
    {"task": "savings"},
    {"task": "savings", "method": "rows"},
    {"task": "recover"},
]


def progress_of(loaded: LoadedModel, **given: Any) -> list[Progress]:
    params = PruningParams.model_validate({**SMALL, **given})
    return [e for e in make_runner().run(RunContext(loaded), params) if isinstance(e, Progress)]


@pytest.mark.parametrize("given", RUNS, ids=lambda g: "-".join(map(str, g.values())))
def test_stages_come_in_their_order_and_each_word_has_its_own_number(tiny: Tiny, given: dict[str, Any]) -> None:
    found = progress_of(tiny("llama"), **given)
    numbers, stages = [event.number for event in found], found[0].stages
    assert numbers == sorted(numbers)
    assert {event.stages for event in found} == {stages}
    assert stages >= 2
    words: dict[int, set[str]] = {}
    for event in found:
        words.setdefault(event.number, set()).add(event.stage)
    assert all(len(said - {PART}) == 1 for said in words.values())  # a word that nobody planned would share a number
    spoken = given["task"] in ("words", "savings")  # of a tiny model the check ends before there is anything to tell
    assert set(range(1, stages + 1)) - set(numbers) <= ({stages} if spoken else set())


def told(*stages: str) -> Generator[Event | None, None, int]:
    for stage in stages:
        yield Progress(stage=stage, done=1, total=2)
        yield None
    return 7


def test_a_stage_that_does_not_come_is_passed_over_and_one_unplanned_belongs_to_the_last() -> None:
    events: list[Event | None] = []

    def passed() -> Generator[None, None, int]:
        made = numbered(told("a", "c: one", "strange", "d"), ["a", "b", "c: *", "d"])
        while True:
            try:
                events.append(next(made))
            except StopIteration as end:
                result: int = end.value
                return result
            yield

    assert drained(passed())[1] == 7
    found = [(e.stage, e.number, e.stages) for e in events if isinstance(e, Progress)]
    assert found == [("a", 1, 4), ("c: one", 3, 4), ("strange", 3, 4), ("d", 4, 4)]
    assert events.count(None) == 4


def test_a_run_that_is_given_up_is_closed_and_other_events_pass() -> None:
    closed = []

    def run() -> Generator[Event | None, None, None]:
        try:
            yield RunFinished()
            yield None
        finally:
            closed.append(True)

    made = numbered(run(), ["a"])
    assert isinstance(next(made), RunFinished)
    made.close()
    assert closed == [True]
