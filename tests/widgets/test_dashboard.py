"""The whole page without a browser: drawn from the packaged recording, driven as its controls drive it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.errors import NotFound
from lab.events import Recording, RunStarted
from lab.events.kv_cache import CacheLedger, TokenDecoded, UncachedToken
from lab.strings import strings
from widgets.exporting import make_export
from widgets.kv_cache.tables import ledger_table, race_table
from widgets.opening import RECORDINGS
from widgets.page import Dashboard
from widgets.poster import poster_html

RECORDED = RECORDINGS / "kv_cache.safetensors"


class NoBackend:
    """A machine on which no model runs: everything is refused in words."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from lab.errors import BackendUnavailable

        def refuse(*_: Any, **__: Any) -> Any:
            raise BackendUnavailable("The model process is not there.", remedy="Start it with `lab up`.")

        return refuse


@pytest.fixture
def page() -> Iterator[Dashboard]:
    page = Dashboard("kv_cache", backend=NoBackend(), autorun=False)
    yield page
    page.close()


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording.load(RECORDED)


def shown(page: Dashboard) -> Any:
    assert page.pump.drain(20)
    return page.views


def test_the_packaged_recording_is_on_screen_first(page: Dashboard, recording: Recording) -> None:
    views = shown(page)
    tokens = [e for e in recording.events if isinstance(e, TokenDecoded)]
    assert views.steps() == len(tokens) > 10
    assert recording.started.recorded
    assert page.parts.heartbeat.state["mode"] == "recorded"
    assert page.parts.proof.state["verdict"] == "equal"
    strip = views._strip.state["tokens"]
    assert [t["text"] for t in strip][-len(tokens) :] == [t.text for t in tokens]


def test_every_figure_has_a_badge_and_agrees_with_the_events(page: Dashboard, recording: Recording) -> None:
    views = shown(page)
    rows = [*views._figures.state["figures"], *views._race_figures.state["figures"]]
    assert len(rows) == 6
    assert {row["badge"] for row in rows} <= {"MEASURED", "DERIVED", "SIMULATED"}
    assert all(row["value"] for row in rows)
    last = [e for e in recording.events if isinstance(e, CacheLedger)][-1]
    by_id = {row["id"]: row for row in rows}
    assert float(by_id["bytes"]["value"]) == pytest.approx(sum(last.layer_bytes) / 2**20, abs=0.005)
    assert "agrees to the byte" in by_id["bytes"]["note"]


def test_a_ledger_off_by_one_byte_is_said(page: Dashboard) -> None:
    views = shown(page)
    with page.pump.lock:
        index = max(views.state.ledgers)
        ledger = views.state.ledgers[index]
        wrong = (ledger.layer_bytes[0] + 1, *ledger.layer_bytes[1:])
        views.state.ledgers[index] = replace(ledger, layer_bytes=wrong)
    page.pump.touch()
    figures = {f["id"]: f for f in shown(page)._figures.state["figures"]}
    assert "differs by +1 bytes" in figures["bytes"]["note"]


def test_scrubbing_shows_the_state_of_that_step(page: Dashboard, recording: Recording) -> None:
    shown(page)
    page._stepped(3)
    views = shown(page)
    prompt = views.state.prompt_length
    assert len(views._strip.state["tokens"]) == prompt + 4
    ledger = next(e for e in recording.events if isinstance(e, CacheLedger) and e.index == 3)
    assert views._ledger.state["data"]["now"]["x"] == [ledger.cache_length]
    assert max(views._race.state["data"]["with"]["x"]) == prompt + 3


def test_pointing_at_a_token_moves_every_picture(page: Dashboard) -> None:
    views = shown(page)
    prompt = views.state.prompt_length
    views._hover(prompt + 5)
    shown(page)
    assert views._strip.state["selected"] == prompt + 5
    assert views._race.state["data"]["now"]["x"][0] == prompt + 5
    assert "new token 6" in views._attention._plot.state["label"]
    views._hover(None)
    shown(page)
    assert views._strip.state["selected"] is None


def test_attention_weights_on_screen_are_those_recorded(page: Dashboard) -> None:
    views = shown(page)
    step = views.steps() - 1
    read = views.state.reads[step]
    drawn = views._attention._plot.state["data"]["bars"]["top"]
    assert drawn == [float(w) for w in read.weights.numpy()[read.layers.index(0), 0]]
    assert sum(drawn) == pytest.approx(1.0, abs=0.01)


def test_a_layer_never_asked_for_is_greyed_in_a_replay(page: Dashboard) -> None:
    views = shown(page)
    missing = next(i for i in range(30) if i not in views.state.reads[views.steps() - 1].layers)
    views._select_layer(missing)
    shown(page)
    shown(page)
    assert views._attention._plot.state["data"]["bars"]["top"] == []
    assert "never asked" in views._attention._caption.state["lines"][0][1]


def test_the_lesson_shows_the_worked_figures(page: Dashboard) -> None:
    shown(page)
    text = json.dumps(page.parts.lesson.state["sections"], ensure_ascii=False)
    for figure in ("500,500", "1,000", "524,288", "4.00 GiB", "1.00 GiB", "(0.33, 1.34)", "(0.75, 1.50)", "46,080"):
        assert figure in text, figure


def test_the_link_restores_what_fits_and_ignores_the_rest(page: Dashboard) -> None:
    shown(page)
    page._restore(
        {
            "prompt": "A prompt",
            "max_new_tokens": 7,
            "temperature": "hot",
            "top_k": -5,
            "layer": 9,
            "head": True,
            "window": 512,
            "batch": 10**9,
            "step": 2,
            "unknown": {"a": 1},
        }
    )
    shown(page)
    link = page.parts.link.state["query"]
    assert (link["prompt"], link["max_new_tokens"], link["temperature"], link["top_k"]) == ("A prompt", 7, 1.0, 50)
    assert (link["layer"], link["head"], link["window"], link["batch"], link["step"]) == (9, 0, 512, 1, 2)


class OneModel(NoBackend):
    """Knows the packaged model and no other."""

    def models(self) -> list[Any]:
        return []

    def experiments(self, model: str | None = None) -> list[Any]:
        if model == "/etc/passwd":
            raise NotFound("No such model.", remedy="Choose another.")
        return []


def test_a_model_from_a_link_that_cannot_be_used_does_not_stay_in_the_menu() -> None:
    page = Dashboard("kv_cache", backend=OneModel(), autorun=False)
    shown(page)
    before = page.parts.controls.state["model"]
    for model, left in (("/etc/passwd", before), ("/models/tiny", "/models/tiny")):
        page._restore({"model": model})
        for thread in threading.enumerate():
            if thread.name == "lab-narrow":
                thread.join(20)
        shown(page)
        controls = page.parts.controls.state
        assert controls["model"] == left
        assert left in [m["id"] for m in controls["models"]]
    page.close()


def test_a_link_written_by_hand_needs_no_quotes() -> None:
    page = Dashboard("quantization", backend=NoBackend(), autorun=False)
    page._restore({"group_size": 32, "prompt": 2026, "bits": 3, "seed": True, "layers": [0]})
    assert [page._state.params[name] for name in ("group_size", "prompt", "bits")] == ["32", "2026", 3]
    page._restore({"group_size": 7})
    assert page._state.params["group_size"] == "32"
    page.close()


class Answers(OneModel):
    """Answers what-if questions with the name of the model that they are about."""

    def inspect(self, request: Any) -> dict[str, Any]:
        curve = {"name": request.model, "group": "model", "bytes": [1.0], "bytes_per_token": 1.0, "fits": None}
        return {"contexts": [1], "curves": [curve], "free_bytes": 2**30}


def test_what_if_is_about_the_chosen_model_on_this_machine() -> None:
    page = Dashboard("kv_cache", backend=Answers(), autorun=False)
    kept = len(page.session.inspections)
    for model in (page._state.model, "/models/tiny"):
        drawn = threading.Event()

        def told(label: str, model: str = model, drawn: threading.Event = drawn) -> None:
            if model in label:
                drawn.set()

        plot = page.views._what_if._plot  # type: ignore[attr-defined]
        plot.observe(lambda change, told=told: told(change["new"]["label"]), "state")
        if model != page._state.model:
            page._restore({"model": model})
        told(plot.state["label"])
        assert drawn.wait(20), f"the curves are not those of {model}"
        assert plot.state["data"]["free"]["y"] == [2**30] * 2, "the free memory of the recording's machine"
    assert len(page.session.inspections) == kept, "answers about another model went into the recording"
    page.close()


def test_the_tables_count_as_the_page_does(page: Dashboard) -> None:
    views = shown(page)
    state = views.state
    rows = ledger_table(state, state.steps - 1).rows
    assert len({row[0] for row in rows}) == len(rows), "the prefill stands there once"
    race = race_table(state, state.steps - 1).rows
    assert [row[0] for row in race] == list(range(1, state.steps + 1))
    assert race[0][2] == pytest.approx(state.prefill_ms() + state.tokens[0].ms, abs=0.01)
    assert race[1][2] == pytest.approx(state.tokens[1].ms, abs=0.01)


def test_a_run_that_was_not_compared_does_not_say_that_it_was(page: Dashboard, recording: Recording) -> None:
    views = shown(page)
    assert "really made twice" in views._race_heading.state["lines"][1][1]
    started = recording.started
    alone = replace(started, card=replace(started.card, params={**started.card.params, "without_cache_tokens": 0}))
    events = (alone, *(e for e in recording.events[1:] if not isinstance(e, UncachedToken)))
    page.session.show(Recording(events))
    page.pump.touch()
    views = shown(page)
    faster = next(f for f in views._figures.state["figures"] if f["id"] == "faster")
    assert faster["value"] == ""
    assert "not compared" in faster["note"]
    assert "twice" not in views._race_heading.state["lines"][1][1]
    assert "Under Compare" in views._race_words.state["lines"][0][1]


def test_names_in_the_pictures_stand_where_nothing_hides_them(page: Dashboard) -> None:
    views = shown(page)
    state = views.state
    slow = {i: replace(u, ms=1000.0) for i, u in state.uncached.items()}
    state.uncached = slow
    state.tokens = [replace(t, ms=50.0) for t in state.tokens]
    page.pump.touch()
    shown(page)
    names = views._race.state["data"]["names"]
    at = dict(zip(names["text"], names["y"], strict=True))["with the cache"]
    assert 50 + 50 < at < 1000 - 50, "not on the axis, on neither line"


def test_names_early_in_a_run_are_not_cut_at_the_left(page: Dashboard) -> None:
    views = shown(page)
    state, race = views.state, views._race
    for upto, side in ((5, "left"), (state.steps - 1, "right")):
        race.show(state, upto)
        names = race.state["data"]["names"]
        assert names["align"] == [side] * len(names["text"]) != []


def test_a_run_without_a_backend_says_what_to_do(page: Dashboard) -> None:
    shown(page)
    failed = threading.Event()
    touch = page.session._changed

    def changed() -> None:
        touch()
        if page.session.phase == "failed":
            failed.set()

    page.session._changed = changed
    page.run()
    assert failed.wait(20)
    shown(page)
    panel = page.parts.error.state
    assert panel["open"]
    assert "not there" in panel["message"]
    assert "lab up" in panel["remedy"]
    assert page.views.steps() > 10, "the recorded picture stays"


def test_unknown_experiments_and_broken_recordings(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="kv_cache"):
        Dashboard("nonsense")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"not a recording")
    page = Dashboard("kv_cache", backend=NoBackend(), autorun=False, recording=broken)
    assert page.pump.drain(20)
    assert page.parts.error.state["open"]
    assert "broken.safetensors" in page.parts.error.state["message"]
    page.close()


def test_exports_hold_the_run(page: Dashboard, recording: Recording, tmp_path: Path) -> None:
    shown(page)
    name, data, _ = make_export("recording", "kv_cache", page.session.recording(), page.views.tables())
    (tmp_path / name).write_bytes(data)
    assert Recording.load(tmp_path / name).events == recording.events
    name, data, _ = make_export("csv", "kv_cache", None, page.views.tables())
    assert data.decode().splitlines()[0] == "# tokens"
    events = json.loads(make_export("json", "kv_cache", page.session.recording(), [])[1])
    assert [e["event"] for e in events] == [e.event for e in recording.events]
    with pytest.raises(Exception, match="has not ended"):
        make_export("json", "kv_cache", None, [])


def test_csv_cells_are_no_formulas() -> None:
    from widgets.experiment import Table

    data = make_export("csv", "kv_cache", None, [Table("t", ["text"], [["=1+1"], ["@x"], ["plain"]])])[1]
    assert data.decode().splitlines()[2:5] == ["'=1+1", "'@x", "plain"]


def test_the_poster_is_that_of_the_recording(recording: Recording) -> None:
    drawn = poster_html("kv_cache", recording, strings())
    assert (RECORDINGS / "kv_cache.html").read_text(encoding="utf-8") == drawn
    assert "2.59" in drawn
    assert re.findall(r'text-anchor="end"[^>]*>([\d.]+)<', drawn) == ["0", "0.5", "1", "1.5", "2", "2.5"]


def test_the_poster_escapes_the_model_s_words(recording: Recording) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    events = [replace(e, text=hostile) if isinstance(e, TokenDecoded) else e for e in recording.events]
    drawn = poster_html("kv_cache", Recording(tuple(events)), strings())
    assert "<img" not in drawn
    assert "&lt;img" in drawn


def test_the_recording_ships_with_its_questions(recording: Recording) -> None:
    assert recording.answer("worked_example", {}) is not None
    assert recording.answer("what_if", {"window": 1024, "batch": 1}) is not None
    assert isinstance(recording.events[0], RunStarted)
    assert "/" not in recording.started.card.model


def test_a_picture_s_button_runs_its_parameters_on_the_model_it_names(
    page: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[dict[str, Any], str]] = []

    def run(_backend: object, request: Callable[[Any], Any]) -> None:
        health = SimpleNamespace(runs_active=0)
        wanted = request(SimpleNamespace(health=lambda: health))
        asked.append((wanted.params, wanted.model))

    desk = shown(page)._desk
    monkeypatch.setattr(page.session, "run", run)
    desk.start({"max_new_tokens": 3, "no_such_name": 1}, "org/other")
    desk.start({"max_new_tokens": 4}, "")
    (first, model), (second, _) = asked
    assert (first["max_new_tokens"], model) == (3, "org/other")
    assert "no_such_name" not in first
    assert second["max_new_tokens"] == 4
    assert desk.models() is None  # no backend has answered: nothing is claimed
