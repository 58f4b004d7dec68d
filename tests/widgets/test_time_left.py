"""Time that is left: derived from the pace of a stage, or not said."""

from __future__ import annotations

import threading

import pytest
from samples import sample_facts

from lab.events import Event, Progress, RunCard, RunStarted
from widgets.session import Session
from widgets.time_left import LEAST_S, LEAST_SHARE, TimeLeft, in_words


def test_the_pace_of_a_stage_tells_what_is_left_of_it() -> None:
    pace = TimeLeft()
    assert pace.at("training", 0.0, 100.0) is None
    assert pace.at("training", 0.5, 110.0) == pytest.approx(10.0)
    assert pace.at("training", 0.75, 115.0) == pytest.approx(5.0)
    assert pace.at("training", 1.0, 120.0) is None


def test_nothing_is_said_before_enough_was_seen_nor_of_another_stage_s_pace() -> None:
    pace = TimeLeft()
    pace.at("a", 0.0, 0.0)
    assert pace.at("a", 0.5, LEAST_S / 2) is None
    assert pace.at("a", LEAST_SHARE / 2, 50.0) is None
    assert pace.at("b", 0.5, 60.0) is None  # at half from the start: nothing of it was seen
    assert pace.at("b", 0.75, 70.0) == pytest.approx(10.0)
    assert pace.at("b", 0.25, 80.0) is None  # it began anew


def test_what_was_done_before_it_was_first_heard_of_counts_for_nothing() -> None:
    pace = TimeLeft()
    pace.at("a", 0.5, 0.0)
    assert pace.at("a", 0.6, 10.0) == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.3, "a few seconds left"),
        (38.0, "about 40 s left"),
        (57.4, "about 55 s left"),
        (57.6, "about 60 s left"),
        (104.0, "about 100 s left"),
        (106.0, "about 2 min left"),
        (1000.0, "about 17 min left"),
    ],
)
def test_a_time_is_said_roughly(seconds: float | None, words: str) -> None:
    assert in_words(seconds) == words


class Told:
    """A session that takes events at given times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.session = Session(threading.RLock(), lambda _: None, lambda: None, lambda: self.now)
        card = RunCard(
            experiment="lora", model="m", weight_hash="", dtype="float32", device="cpu", attention="sdpa", threads=1
        )
        self.take(RunStarted(run_id="r", card=card, facts=sample_facts()))

    def take(self, event: Event, now: float = 0.0) -> Told:
        self.now = now
        self.session._take(event)
        return self


def far(done: int, number: int = 0, stages: int = 0, stage: str = "training") -> Progress:
    return Progress(stage=stage, done=done, total=48, number=number, stages=stages)


def test_the_note_says_the_stage_and_its_time_and_the_bar_goes_on() -> None:
    told = Told().take(far(0, 2, 5), 0.0).take(far(24, 2, 5), 40.0)
    assert told.session.note == "stage 2 of 5: training 24 of 48, about 40 s left of this stage"
    assert told.session.fraction == pytest.approx(1.5 / 5)
    told.take(far(0, 2, 5, "a part that nobody planned"), 50.0)
    assert told.session.fraction == pytest.approx(1.5 / 5)  # it takes nothing back
    told.take(far(0, 5, 5, "checking"), 60.0).take(far(24, 5, 5, "checking"), 70.0)
    assert told.session.note == "stage 5 of 5: checking 24 of 48, about 10 s left"


def test_a_run_that_is_one_bar_in_all_counts_no_stages() -> None:
    told = Told().take(far(0, 1, 1), 0.0).take(far(24, 1, 1), 40.0)
    assert told.session.note == "training 24 of 48, about 40 s left"
    assert told.session.fraction == 0.5


def test_a_run_that_does_not_say_what_its_bar_is_of_has_no_time() -> None:
    told = Told().take(far(0), 0.0).take(far(24), 40.0)
    assert told.session.note == "training 24 of 48"
    assert told.session.fraction == 0.5
    told.take(far(12), 50.0)
    assert told.session.fraction == 0.25  # as it was: another part may have a bar of its own
