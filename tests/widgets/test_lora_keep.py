"""The form that keeps a trained adapter: names, answers that come late, runs that cannot be kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from lora_runs import train_run
from pages import drawn, fold_all, send
from words_sim import HOSTILE

from lab.events import Event, RunFinished, RunStarted
from widgets.experiment import Desk
from widgets.lora.adapter_section import adapter_verdict
from widgets.lora.keep_section import KeepSection
from widgets.lora.state import LoraState


def lived(events: Iterable[Event]) -> list[Event]:
    """The same run, not recorded."""
    return [replace(e, recorded="") if isinstance(e, RunStarted) else e for e in events]


def test_the_trained_adapter_is_kept_under_a_name_that_fits() -> None:
    asked: list[dict[str, Any]] = []
    replies: list[Callable[..., None]] = []
    started_with: list[Any] = []

    def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        assert (name, of_run) == ("save", True)
        asked.append(params)
        replies.append(reply)

    def start(params: Any, model: str) -> None:
        started_with.append((params, model))

    desk = Desk(ask=ask, touch=lambda: None, lock=threading.RLock(), start=start)
    state = fold_all(LoraState, lived(train_run()))
    section = KeepSection(desk)
    section.render(state, 48, live=False)
    for name, wrong in (
        ("", "a name first"),
        ("../up", "Letters, digits"),
        (HOSTILE, "Letters"),
        ("x" * 41, "at most 40"),
    ):
        send(section._form, type="values", changed={"name": name}, invalid=[])
        send(section._actions, type="action", id="keep")
        section.render(state, 48, live=False)
        assert wrong in section._form.state["errors"]["name"]
    assert asked == []
    send(section._form, type="values", changed={"name": "island-8"}, invalid=[])
    for _ in range(2):  # pressed twice: asked once
        send(section._actions, type="action", id="keep")
    section.render(state, 48, live=False)
    assert asked == [{"name": "island-8"}]
    assert section._actions.state["actions"] == []
    replies[0](None, "There is an adapter island-8 already.")
    section.render(state, 48, live=False)
    assert section._form.state["errors"] == {"name": "There is an adapter island-8 already."}
    send(section._actions, type="action", id="keep")
    replies[1]({"name": "island-8", "words": "Kept as island-8."}, "")
    section.render(state, 48, live=False)
    assert "Kept as island-8." in json.dumps(section._words.state)
    assert [a["id"] for a in section._actions.state["actions"]] == ["keep", "compare"]
    send(section._actions, type="action", id="compare")
    assert started_with == [({"task": "compare", "adapter": "island-8"}, "")]
    send(section._form, type="values", changed={"name": "second"}, invalid=[])
    send(section._actions, type="action", id="keep")
    section.reset()
    replies[2]({"name": "second", "words": "Kept as second."}, "")  # of the run before: not of this one
    assert section.kept == ""


def test_nothing_is_kept_of_a_living_run_or_of_a_recording() -> None:
    going = fold_all(LoraState, [e for e in lived(train_run()) if not isinstance(e, RunFinished)])
    section = drawn(KeepSection, going, live=True)
    assert section._form.state["disabled"] is True
    assert "Follows when the run has ended." in json.dumps(section._words.state)
    section = drawn(KeepSection, fold_all(LoraState, train_run()))
    assert section._form.state["disabled"] is True
    assert section._actions.state["actions"] == []
    assert "trained anew" in json.dumps(section._words.state)


def test_a_stopped_training_keeps_the_best_so_far_once_there_is_a_step() -> None:
    for upto, present in ((0, False), (9, True)):
        state = fold_all(LoraState, lived(train_run(upto=upto, end="stopped")))
        assert KeepSection.present(state) is present
    assert not KeepSection.present(fold_all(LoraState, train_run(upto=9, end="failed")))
    section = drawn(KeepSection, state)
    assert section._form.state["disabled"] is False
    assert [a["id"] for a in section._actions.state["actions"]] == ["keep"]
    assert "Keep the best adapter so far" in json.dumps(section._words.state)
    assert adapter_verdict(state, live=False)[1] == "Stopped while it was trained"


def test_a_run_that_was_told_to_keep_its_adapter_says_so() -> None:
    events = lived(train_run())
    first = events[0]
    assert isinstance(first, RunStarted)
    card = replace(first.card, params={**first.card.params, "save": "mine"})
    section = drawn(KeepSection, fold_all(LoraState, [replace(first, card=card), *events[1:]]))
    assert "Kept as mine, as the run's settings asked." in json.dumps(section._words.state)
