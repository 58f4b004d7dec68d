"""The run card as Python: it makes the same run again, names what differs, and quotes what a visitor wrote."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.events import Event, Recording, RunCard
from lab.events.kv_cache import TokenDecoded
from lab.experiments.registry import EXPERIMENTS
from widgets.opening import RECORDINGS
from widgets.python_code import changed, literal, python_code
from widgets.run_card import RunCardButton


def card_of(experiment: str, **params: Any) -> RunCard:
    card = Recording.load(RECORDINGS / f"{experiment}.safetensors").started.card
    return replace(card, params={**card.params, **params})


def request_of(code: str) -> dict[str, Any]:
    """The arguments of the request in the code, as literals."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    call = next(call for call in calls if getattr(call.func, "id", "") == "RunRequest")
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}


@pytest.mark.parametrize("experiment", list(EXPERIMENTS))
def test_every_page_s_card_is_code(experiment: str) -> None:
    card = card_of(experiment)
    button = RunCardButton()
    button.show(card)
    request = request_of(button.state["python"])
    assert request["experiment"] == experiment
    assert request["model"] == card.model
    again = EXPERIMENTS[experiment].params(**request["params"]).model_dump(mode="json")
    assert {name: again[name] for name in card.params} == card.params
    button.show(None)
    assert button.state["python"] == ""


def test_only_what_differs_is_named() -> None:
    card = card_of("kv_cache", max_new_tokens=7, prompt="Other words")
    assert changed(card) == {"max_new_tokens": 7, "prompt": "Other words"}
    assert request_of(python_code(card))["params"] == changed(card)
    assert changed(replace(card, experiment="of another lab")) == card.params


@pytest.mark.parametrize("text", ["'''\"\"\"\n# \\", "\u2028\ud800\x00", "');import os;os.abort()#", "x" * 500])
def test_any_text_stays_a_text(text: str) -> None:
    card = replace(card_of("kv_cache", prompt=text), model=text, files={text: "ab" * 32})
    request = request_of(python_code(card))
    assert request["params"]["prompt"] == text
    assert request["model"] == text


def test_values_that_python_does_not_write_itself() -> None:
    value = {"a": [1.5, float("inf"), {"b": float("-inf")}], "c": "inf", "d": None, "e": [True] * 40}
    assert eval(literal(value), {"__builtins__": {"float": float}}) == value  # noqa: S307 - our own literal
    assert max(map(len, literal(value).splitlines())) < 100


def of_tokens(events: list[Event]) -> list[tuple[int, float]]:
    return [(e.token_id, e.log_prob) for e in events if isinstance(e, TokenDecoded)]


def test_the_code_makes_the_same_run(tiny_directory: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    from lab.backend.local import LocalBackend
    from lab.backend.protocol import RunRequest

    params = {"prompt": "one two three", "max_new_tokens": 6, "without_cache_tokens": 2, "do_sample": True, "seed": 5}
    backend = LocalBackend()
    try:
        first = list(backend.run(RunRequest(experiment="kv_cache", params=params, model=str(tiny_directory("llama")))))
    finally:
        backend.close()
    started: Any = first[0] if first[0].event == "run_started" else next(e for e in first if e.event == "run_started")
    found: dict[str, Any] = {}
    exec(python_code(started.card), found)  # noqa: S102 - the code is what is tested
    again = found["events"]
    assert of_tokens(again) == of_tokens(first)
    assert len(of_tokens(first)) == 6
    assert next(e for e in again if e.event == "run_started").card == started.card
    assert "RunFinished" in capsys.readouterr().out
    other = replace(started.card, params={**started.card.params, "seed": 6})  # the mutation: another seed, another text
    exec(python_code(other), found)  # noqa: S102
    assert of_tokens(found["events"]) != of_tokens(first)
