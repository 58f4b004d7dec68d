"""The form that writes the merged model, and the way from there to the quantization page."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from lora_runs import WRITTEN, compare_run, ends, train_run
from pages import fold_all, send
from samples import sample_facts
from words_sim import HOSTILE

from lab.events import Event, ModelFacts, RunStarted
from widgets.experiment import Desk, build_views
from widgets.lora.keep_section import KeepSection
from widgets.lora.merged_section import MergedSection, quantize_link, written_words
from widgets.lora.state import LoraState
from widgets.lora.views import LoraViews
from widgets.page import Dashboard


def lived(events: Iterable[Event]) -> list[Event]:
    return [replace(e, recorded="") if isinstance(e, RunStarted) else e for e in events]


class Table:
    """A desk whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.replies: list[Callable[..., None]] = []
        self.started: list[tuple[dict[str, Any], str]] = []
        self.renewed = 0

        def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
            del of_run
            self.asked.append((name, params))
            self.replies.append(reply)

        def renew() -> None:
            self.renewed += 1

        self.desk = Desk(ask=ask, touch=lambda: None, lock=threading.RLock(), renew=renew)
        self.desk.start = lambda params, model: self.started.append((dict(params), model))


def write(section: MergedSection, name: str) -> None:
    send(section._form, type="values", changed={"name": name}, invalid=[])
    send(section._actions, type="action", id="write")


def test_a_comparison_is_run_again_and_writes_what_it_merged() -> None:
    table = Table()
    section = MergedSection(table.desk)
    section.render(fold_all(LoraState, compare_run()), 0, live=False)
    for name, wrong in (("", "a name first"), ("../up", "Letters"), (HOSTILE, "Letters"), ("x" * 41, "at most 40")):
        write(section, name)
        section.render(fold_all(LoraState, compare_run()), 0, live=False)
        assert wrong in section._form.state["errors"]["name"]
    assert table.started == []
    write(section, "island-8")
    ((params, model),) = table.started
    assert model == ""
    wanted = {"task": "compare", "adapter": "packaged", "merged_out": "island-8", "break_run": "nothing", "factor": 1.0}
    assert wanted.items() <= params.items()
    assert "on no grid" in json.dumps(section._words.state)


def test_a_trained_adapter_is_kept_first_unless_it_is_kept_already() -> None:
    table = Table()
    section = MergedSection(table.desk)
    state = fold_all(LoraState, lived(train_run()))
    section.render(state, 0, live=False)
    for _ in range(2):  # pressed twice: asked once
        write(section, "island-8")
    assert table.asked == [("save", {"name": "island-8"})]
    assert table.started == []
    table.replies[0](None, "There is an adapter island-8 already.")
    section.render(state, 0, live=False)
    assert section._form.state["errors"] == {"name": "There is an adapter island-8 already."}
    write(section, "other")
    table.replies[1]({"name": "other", "words": "Kept."}, "")
    ((params, _),) = table.started
    assert {"adapter": "other", "merged_out": "other", "keep_rank": 0, "factor": 1.0}.items() <= params.items()
    write(section, "third")
    section.reset()
    table.replies[2]({"name": "third"}, "")  # of the run before: nothing is started for this one
    assert len(table.started) == 1
    section.kept = lambda: "mine"
    section.render(state, 0, live=False)
    write(section, "fourth")
    assert table.started[-1][0]["adapter"] == "mine"
    assert len(table.asked) == 3


def test_the_page_ties_the_form_to_the_one_that_keeps() -> None:
    table = Table()
    views = build_views("lora", table.desk)
    assert isinstance(views, LoraViews)
    for event in lived(train_run()):
        views.fold(event)
    views.render(live=False)
    keep, merged = views.section("KeepSection"), views.section("MergedSection")
    assert isinstance(keep, KeepSection)
    assert isinstance(merged, MergedSection)
    assert merged.kept() == ""
    keep.kept = "mine"
    assert merged.kept() == "mine"


def test_what_was_written_leads_to_the_quantization_page() -> None:
    table = Table()
    section = MergedSection(table.desk)
    events = lived(compare_run())
    state = fold_all(LoraState, [*events[:-1], WRITTEN, events[-1]])
    for _ in range(2):
        section.render(state, 0, live=False)
    assert table.renewed == 1
    link, write_more = section._actions.state["actions"]
    assert (link["label"], write_more["id"]) == ("Quantize island-8 →", "write")
    address = urlsplit(link["href"])
    assert (address.scheme, address.netloc, address.path) == ("", "", "quantization.ipynb")
    assert dict(parse_qsl(address.fragment)) == {"model": WRITTEN.model, "projection": "q_proj"}
    said = json.dumps(section._words.state, ensure_ascii=False)
    assert "513 MiB" in said
    assert "99.8\u00a0% of the 13,271,040 merged weights change; in the base, 0\u00a0%" in said
    assert "150 other matrices are the base's own" in said
    unmeasured = replace(WRITTEN, checked=0, base_changed=float("nan"), merged_changed=float("nan"), projections=())
    assert len(written_words(unmeasured)) == 1
    assert "projection" not in quantize_link(unmeasured)


def test_nothing_is_written_of_a_recorded_training_or_where_nothing_can_be_started() -> None:
    table = Table()
    section = MergedSection(table.desk)
    section.render(fold_all(LoraState, train_run()), 0, live=False)
    assert section._actions.state["actions"] == []
    assert section._form.state["disabled"] is True
    assert "A recording has no adapter" in json.dumps(section._words.state)
    recorded = [*list(compare_run())[:-1], WRITTEN, ends()]
    section.render(fold_all(LoraState, recorded), 0, live=False)  # no link: the model need not be here
    assert [a["id"] for a in section._actions.state["actions"]] == ["write"]
    assert table.renewed == 0
    table.desk.start = None
    section.render(fold_all(LoraState, lived(compare_run())), 0, live=False)
    assert section._actions.state["actions"] == []
    assert not MergedSection.present(fold_all(LoraState, compare_run(matches="", effectless="B is zero")))


class Here:
    """A backend whose list of models grows."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.known: list[ModelFacts] = []

    def models(self) -> list[ModelFacts]:
        self.asked.release()
        return list(self.known)

    def experiments(self, model: str) -> list[Any]:
        del model
        return []

    def close(self) -> None:
        """Nothing to close."""


def test_a_name_is_used_by_one_run_and_what_it_wrote_joins_the_menu(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here()
    page = Dashboard("lora", backend=here, autorun=False)  # type: ignore[arg-type]
    asked: list[dict[str, Any]] = []

    def run(_backend: object, request: Callable[[Any], Any]) -> None:
        wanted = request(SimpleNamespace(health=lambda: SimpleNamespace(runs_active=0)))
        asked.append(wanted.params)

    monkeypatch.setattr(page.session, "run", run)
    assert here.asked.acquire(timeout=20)
    desk = page.views._desk  # type: ignore[attr-defined]
    desk.start({"task": "compare", "merged_out": "island-8"}, "")
    page.run()
    assert [params["merged_out"] for params in asked] == ["island-8", ""]
    assert [params["task"] for params in asked] == ["compare", "compare"]
    here.known = [replace(sample_facts(), id=WRITTEN.model, name=WRITTEN.name)]
    desk.renew()
    assert here.asked.acquire(timeout=20)
    for thread in threading.enumerate():
        if thread.name == "lab-renew":
            thread.join(20)
    assert page.pump.drain(20)
    assert WRITTEN.model in [m["id"] for m in page.parts.controls.state["models"]]
    page.close()
