"""The `speculative` page on real runs of a tiny model: its words and counts hold on what the engine really sends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.backend.local import LocalBackend
from lab.backend.protocol import InspectRequest, RunRequest
from lab.backend.store import RunStore
from lab.events import Event, Recording, RunFinished
from widgets.experiment import Desk
from widgets.speculative import poster, sentences
from widgets.speculative.figures import details, headline
from widgets.speculative.state import Spot
from widgets.speculative.views import SpeculativeViews


@pytest.fixture(scope="module")
def run(
    tiny_directory: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., list[Event]]]:
    """`run(task="decode", ...)`: all events of a real run of a tiny model."""
    backend = LocalBackend(store=RunStore(tmp_path_factory.mktemp("runs"), 10**8))
    model = str(tiny_directory("llama"))

    def make(**params: Any) -> list[Event]:
        request = RunRequest(experiment="speculative", model=model, device="cpu", fresh=True, params=params)
        events = list(backend.run(request))
        assert isinstance(events[-1], RunFinished), events[-1]
        return events

    make.example = backend.inspect(  # type: ignore[attr-defined]
        InspectRequest(experiment="speculative", name="worked_example", params={}, model=model)
    )
    yield make
    backend.close()


def shown(events: list[Event], example: dict[str, Any]) -> SpeculativeViews:
    """The page after all of `events`, drawn at several points as while it lives."""

    def ask(_name: str, _params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        del of_run
        reply(example, "")

    views = SpeculativeViews(Desk(ask=ask, touch=lambda: None, lock=threading.RLock()))
    for i, event in enumerate(events):
        views.fold(event)
        if i % 7 == 0:
            views.render(live=True)
    views.settle()
    views.render(live=False)
    return views


@pytest.mark.parametrize(
    "params",
    [
        {"draft": "early_exit", "exit_layer": 1, "gamma": 3},
        {"draft": "early_exit", "exit_layer": 1, "gamma": 1, "do_sample": False},
        {"draft": "lookup", "gamma": 16},
        {"draft": "early_exit", "exit_layer": 1, "gamma": 4, "break_run": "no_residual"},
    ],
)
def test_what_the_page_counts_is_what_the_run_says(run: Any, params: dict[str, Any]) -> None:
    events = run(prompt="one two three one two three one two", chat=False, max_new_tokens=24, **params)
    views = shown(events, run.example)
    state, end = views.state, events[-1]
    assert isinstance(end, RunFinished)
    assert state.figures is not None
    counts = state.counts(state.steps - 1)
    assert (counts.rounds, counts.drafted, counts.judged, counts.accepted) == (
        state.figures.rounds,
        state.figures.drafted,
        state.figures.judged,
        state.figures.accepted,
    )
    assert counts.by_depth == tuple(state.figures.by_depth)
    assert state.emitted(state.steps - 1) == len(end.token_ids)
    standing = [state.token(s) for s in state.spots(state.steps - 1, dropped=False)]
    assert tuple(t.token_id for t in standing if t) == end.token_ids[1:]
    for round_ in state.rounds:
        for row, token in enumerate(round_.tokens):
            said = sentences.sentences(state, Spot(round_.index, row))
            assert said, token
            assert all("nan" not in text and "unknown" not in text for text in said), said
            if token.kind == "rejected" and params.get("do_sample", True):
                assert token.u >= token.accept
    assert "<svg" in poster.body(Recording(tuple(events), ()))
    assert {"By hand"} <= {s["title"] for s in views.lesson(None) if "table" in s}
    assert all(table.rows for table in views.tables() if table.name != "distributions")


def test_a_run_of_one_token_says_that_there_is_nothing_to_count(run: Any) -> None:
    events = run(prompt="one two three", chat=False, draft="lookup", max_new_tokens=1)
    views = shown(events, run.example)
    state = views.state
    figures = [*headline(state, state.steps - 1), *details(state, state.steps - 1)]
    values = {figure["id"]: figure["value"] for figure in figures}
    assert values.pop("memory") == "0"
    assert set(values.values()) == {"n/a"}, values
    assert values.keys() >= {"accept_judged", "tokens_per_pass", "measured", "alpha", "c", "v", "predicted"}
    assert not [f for f in figures if "nan" in str(f).lower()]
    assert "no round" in next(f["note"] for f in figures if f["id"] == "measured")
    assert "nan" not in poster.body(Recording(tuple(events), ())).lower()
    # While it runs, what is not known yet is no "n/a".
    living = shown(events[:-4], run.example).state
    assert "n/a" not in [f["value"] for f in (*headline(living, -1), *details(living, -1))]


def test_sweep_and_trial_draw_their_own_pictures(run: Any) -> None:
    small = {"prompt": "one two three one two", "chat": False, "draft": "early_exit", "exit_layer": 1}
    sweep = shown(run(task="sweep", max_new_tokens=8, **small), run.example)
    gammas = sweep._sweep._plot.state["data"]["measured"]["x"]
    assert gammas == sorted(gammas)
    assert gammas[0] == 1
    assert len(gammas) == sweep.steps() == sweep.planned_steps()
    assert "×" in sweep._sweep._plot.state["data"]["names"]["text"][-1]
    trial = shown(run(task="trial", trial_runs=100, **small), run.example)
    point = trial.state.trial[-1]
    assert point.runs == 100
    assert trial._trial._verdict.state["tone"] in ("good", "even")
    rows = trial._trial._pairs.state["rows"]
    assert len(rows) == len(point.pairs)
    assert sum(observed for *_, observed in point.pairs) == 100
    assert float(trial._trial._identity.state["figures"][1]["value"] or 0) < 1e-9
