"""The words beside Run, on every page: a recording is no run that the page made."""

from __future__ import annotations

import pytest
from test_resend import NoBackend

from lab.events import Progress
from lab.experiments.registry import EXPERIMENTS
from widgets.page import Dashboard


@pytest.mark.parametrize("experiment", sorted(EXPERIMENTS))
def test_a_page_that_shows_a_recording_has_a_bar_that_says_nothing(experiment: str) -> None:
    page = Dashboard(experiment, backend=NoBackend(), autorun=False)  # type: ignore[arg-type]
    assert page.pump.drain(20)
    assert page.session.phase == "done"
    shown = page.parts.runner.state
    assert (shown["phase"], shown["fraction"], shown["note"]) == ("idle", None, "")
    assert page.parts.heartbeat.state["mode"] == "recorded"
    with page.pump.lock:
        page.session.replaying = False  # the same run, made here
        page.session._take(Progress(stage="checking", done=1, total=4, number=2, stages=2))
    page.pump.touch()
    assert page.pump.drain(20)
    assert page.parts.runner.state["phase"] == "running"
    assert page.parts.runner.state["note"] == "stage 2 of 2: checking 1 of 4"
    page.close()
