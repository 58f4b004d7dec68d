"""The `lora` page on real runs of a tiny model: what the backend really answers can be drawn."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from pages import send, walk

from lab.backend.local import LocalBackend
from lab.backend.protocol import InspectRequest, RunRequest
from lab.backend.store import RunStore
from lab.errors import LabError
from lab.events import Event, Recording, RunFinished, RunStarted
from lab.events.quantization import GridNote
from lab.models.at_hand import off_grid
from widgets.experiment import Desk
from widgets.lora.keep_section import KeepSection
from widgets.lora.merged_section import MergedSection
from widgets.lora.poster import body
from widgets.lora.scale_section import WARM, ScaleSection
from widgets.lora.views import LoraViews

LINES = "\n".join(f"the cache {word} => keeps {word} now" for word in "abcdefghijklmn")
SMALL = {
    "task": "train",
    "learn": "lines",
    "lines": LINES,
    "steps": 6,
    "batch": 4,
    "rank": 4,
    "prompt": "the cache keeps",
    "max_new_tokens": 8,
    "chat": False,
}


class Bench:
    """A backend with a tiny model, and a page that asks it about its newest run."""

    def __init__(self, model: str, store: RunStore) -> None:
        self.backend = LocalBackend(store=store)
        self.model = model
        self.run_id = ""
        self.asked: list[tuple[str, bool]] = []
        self.refused: list[str] = []

    def run(self, **params: Any) -> list[Event]:
        request = RunRequest(experiment="lora", model=self.model, device="cpu", fresh=True, params={**SMALL, **params})
        events = list(self.backend.run(request))
        assert isinstance(events[-1], RunFinished), events[-1]
        assert isinstance(events[0], RunStarted)
        self.run_id = events[0].run_id
        return events

    def ask(self, name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        run_id = self.run_id if of_run else None
        try:
            found = self.backend.inspect(
                InspectRequest(experiment="lora", name=name, params=params, model=self.model, run_id=run_id)
            )
        except LabError as error:
            self.refused.append(f"{name}: {error}")
            reply(None, str(error))
            return
        self.asked.append((name, of_run))
        reply(found, "")

    def page(self, events: list[Event]) -> LoraViews:
        views = LoraViews(Desk(ask=self.ask, touch=lambda: None, lock=threading.RLock()))
        for i, event in enumerate(events):
            views.fold(event)
            if i % 20 == 0:
                views.render(live=True)
        views.settle()
        for _ in range(len(WARM) + 1):
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


def test_all_answers_are_read_and_all_sections_are_there(bench: Bench, events: list[Event]) -> None:
    bench.asked.clear()
    bench.refused.clear()
    views = bench.page(events)
    assert bench.refused == []
    text = json.dumps([view.state for view in walk(views.widget)], ensure_ascii=False, allow_nan=False)
    assert "could not be read" not in text
    assert set(bench.asked) == {("scale", True), ("count", False), ("worked_example", False)}
    assert "y = (5, 7) both ways" in text
    assert "The base is untouched" in text
    shown = {type(section).__name__ for section in views._shown()}
    assert {"DataSection", "TrainingSection", "WordsSection", "ScaleSection", "SpectrumSection"} <= shown
    assert "<figure>" in body(Recording(tuple(events), ()))


def test_the_scale_at_1_has_the_probabilities_of_the_run(bench: Bench, events: list[Event]) -> None:
    views = bench.page(events)
    section = views.section("ScaleSection")
    assert isinstance(section, ScaleSection)
    for row in section._bars.state["rows"]:
        assert row["bars"][0][0] == pytest.approx(row["dots"][0][0], abs=1e-4)
    section._rows.index = 1  # the base's words
    send(section._slider.widget, type="values", changed={"factor": 0.0}, invalid=[])
    views.render(live=False)
    rows = section._bars.state["rows"]
    assert rows
    for row in rows:
        assert row["bars"][0][0] == pytest.approx(row["dots"][0][0], abs=1e-4)
        assert row["cells"][2] == "the same"  # greedy words are the base's first choice
    send(section._slider.widget, type="values", changed={"factor": 2.0}, invalid=[])
    views.render(live=False)
    moved = [row["bars"][0][0] for row in section._bars.state["rows"]]
    assert any(not math.isclose(a, b["bars"][0][0], abs_tol=1e-4) for a, b in zip(moved, rows, strict=True))


def keep(section: KeepSection) -> None:
    send(section._form, type="values", changed={"name": "mine"}, invalid=[])
    send(section._actions, type="action", id="keep")


def test_a_merged_model_is_on_the_quantization_page_s_list(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    views = bench.page(bench.run(merged_out="island-4"))
    section = views.section("MergedSection")
    assert isinstance(section, MergedSection)
    link = section._actions.state["actions"][0]["href"]
    model = dict(parse_qsl(urlsplit(link).fragment))["model"]
    assert off_grid(bench.backend.models(), "quantization")[0].id == model == str(tmp_path / "trained" / "island-4")
    layer = {"task": "layer", "layers": [0], "group_size": "32", "calibration_tokens": 32, "heldout_tokens": 16}
    events = list(bench.backend.run(RunRequest(experiment="quantization", model=model, device="cpu", params=layer)))
    assert isinstance(events[-1], RunFinished), events[-1]
    assert [e.changed > 0.5 for e in events if isinstance(e, GridNote)] == [True]


def test_what_was_kept_runs_again_before_and_after(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_CACHE_DIR", str(tmp_path))
    views = bench.page(bench.run())
    section = views.section("KeepSection")
    assert isinstance(section, KeepSection)
    keep(section)
    assert section.kept == "mine"
    assert (tmp_path / "adapters" / "mine" / "adapter_config.json").is_file()
    again = bench.run(task="compare", adapter="mine", heldout_tokens=64)
    own = bench.page(again).state.own
    assert own is not None
    assert (own.name, own.matches, own.effectless) == ("mine", "", "")
    views = bench.page(bench.run(seed=1))  # another adapter does not take its place
    section = views.section("KeepSection")
    assert isinstance(section, KeepSection)
    keep(section)
    views.render(live=False)
    assert "There is an adapter" in section._form.state["errors"]["name"]
