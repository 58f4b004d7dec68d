"""The `quantization` page on real runs of a tiny model: what the backend really answers can be drawn."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import send, walk

from lab.backend.local import LocalBackend
from lab.backend.protocol import InspectRequest, RunRequest
from lab.backend.store import RunStore
from lab.errors import LabError
from lab.events import Event, Recording, RunFinished
from lab.events.recording import Inspection
from widgets.experiment import Desk
from widgets.quantization import poster
from widgets.quantization.group_sizes import compared
from widgets.quantization.histogram_section import HistogramSection
from widgets.quantization.views import QuantizationViews

SMALL = {"calibration_tokens": 64, "heldout_tokens": 32, "group_size": "32", "layers": [0]}


class Bench:
    """A backend with a tiny model, and pages that ask it."""

    def __init__(self, model: str, store: RunStore) -> None:
        self.backend = LocalBackend(store=store)
        self.model = model
        self.asked: list[Inspection] = []
        self.refused: list[str] = []

    def run(self, **params: Any) -> list[Event]:
        request = RunRequest(
            experiment="quantization", model=self.model, device="cpu", fresh=True, params={**SMALL, **params}
        )
        events = list(self.backend.run(request))
        assert isinstance(events[-1], RunFinished), events[-1]
        return events

    def ask(self, name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        assert not of_run
        request = InspectRequest(experiment="quantization", name=name, params=params, model=self.model)
        try:
            found = self.backend.inspect(request)
        except LabError as error:
            self.refused.append(f"{name}: {error}")
            reply(None, str(error))
            return
        self.asked.append(Inspection(name=name, params=params, answer=found))
        reply(found, "")

    def page(self, events: list[Event]) -> QuantizationViews:
        views = QuantizationViews(Desk(ask=self.ask, touch=lambda: None, lock=threading.RLock()))
        for i, event in enumerate(events):
            views.fold(event)
            if i % 40 == 0:
                views.render(live=True)
        views.settle()
        views.render(live=False)
        return views


@pytest.fixture(scope="module")
def bench(tiny_directory: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(str(tiny_directory("llama")), RunStore(tmp_path_factory.mktemp("runs"), 10**8))
    yield made
    made.backend.close()


@pytest.fixture(scope="module")
def events(bench: Bench) -> list[Event]:
    return bench.run()


def text(views: QuantizationViews) -> str:
    return json.dumps([view.state for view in walk(views.widget)], ensure_ascii=False)


def test_all_answers_are_read_and_all_sections_are_there(bench: Bench, events: list[Event]) -> None:
    bench.asked.clear()
    bench.refused.clear()
    views = bench.page(events)
    assert bench.refused == []
    assert "could not be read" not in text(views)
    assert {i.name for i in bench.asked} == {"histogram", "group", "formats", "storage", "worked_example"}
    titles = [view.state["lines"][0][1] for view in walk(views.widget) if view.state.get("css_class") == "lab-heading"]
    assert titles[:2] == ["What does a smaller group buy?", "One group, before and after"]
    assert {"Three errors together", "How much of the model is that?", "By hand"} <= set(titles)


def test_sliders_answer_with_the_figures_of_a_run(bench: Bench, events: list[Event]) -> None:
    views = bench.page(events)
    section = views.section("HistogramSection")
    assert isinstance(section, HistogramSection)
    run = {row["id"]: row for row in section._rows.state["rows"]}
    moves: list[dict[str, Any]] = [{"bits": 3}, {"bits": 4}]
    for changed in moves:
        send(section._controls, type="values", changed=changed)
        views.render(live=False)
    asked = section._asked.known(section.question(section.values))
    assert asked is not None
    for histogram, worst in asked:
        row = run[histogram.setting.label]
        assert [c for c in row["counts"] if c] == [int(c) for c in histogram.counts.numpy() if c]
        assert worst[0].after - worst[0].before == pytest.approx(row["dots"][0][0], rel=1e-5)
    moves = [{"method": "nf4"}, {"kind": "float_minimum", "method": "nearest"}, {"method": "int8"}]
    for changed in moves:
        send(section._controls, type="values", changed=changed)
        views.render(live=False)
        assert section._rows.state["waiting"] is False
        assert section._rows.state["rows"]
    assert "could not be read" not in text(views)


def test_the_page_names_group_sizes_as_the_backend_compares_them(bench: Bench, events: list[Event]) -> None:
    views = bench.page(events)
    shares = [h.setting.share for h in views.state.histograms]
    assert shares == compared(views.state.histograms[0].columns, "32")


def test_other_methods_and_words_are_drawn(bench: Bench) -> None:
    for params in ({"method": "gptq"}, {"method": "nf4"}, {"method": "llm_int8"}, {"activations": "dynamic_token"}):
        views = bench.page(bench.run(**params))
        assert "could not be read" not in text(views), params
        for table in views.tables():
            assert all(len(row) == len(table.head) for row in table.rows), table.name


def test_a_recording_replays_what_was_asked_and_greys_the_rest(
    bench: Bench, events: list[Event], tmp_path: Path
) -> None:
    bench.asked.clear()
    bench.page(events)
    recording = Recording(tuple(events), tuple(bench.asked))
    recording.save(tmp_path / "run.safetensors")
    loaded = Recording.load(tmp_path / "run.safetensors")

    def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        del of_run
        found = loaded.answer(name, params)
        reply(found, "" if found is not None else "This was never asked while the run was recorded.")

    views = QuantizationViews(Desk(ask=ask, touch=lambda: None, lock=threading.RLock()))
    for event in loaded.events:
        views.fold(event)
    views.settle()
    views.render(live=False)
    assert "never asked" not in text(views)
    section = views.section("HistogramSection")
    assert isinstance(section, HistogramSection)
    send(section._controls, type="values", changed={"bits": 7})
    views.render(live=False)
    assert "never asked" in text(views)
    assert section._rows.state["rows"]
    drawn = poster.body(loaded)
    assert drawn.count("<path") == len(views.state.histograms)
    assert "bits a weight" in drawn
