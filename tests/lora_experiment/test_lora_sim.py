"""The simulated runs that page tests use have the events of real ones, in their order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lora_given import learn, made, on_disk, ran
from lora_runs import compare_run, merge_run, swap_run, train_run

from lab.events import Event, Progress, RunFinished, RunStarted, decode_line, encode_line

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

SIMULATED = {"train": train_run, "compare": compare_run, "swap": swap_run, "merge": merge_run}


def kinds(events: list[Event]) -> list[str]:
    """Names of the classes in order, each stretch once, without what the backend adds."""
    found: list[str] = []
    for event in events:
        name = type(event).__name__
        if not isinstance(event, Progress | RunStarted | RunFinished) and (not found or found[-1] != name):
            found.append(name)
    return found


@pytest.mark.parametrize("task", SIMULATED)
def test_simulated_runs_are_like_real_ones(tiny: Callable[..., LoadedModel], tmp_path: Path, task: str) -> None:
    model = tiny("llama")
    real = learn(model) if task == "train" else ran(model, task=task, adapter=on_disk(tmp_path, made(model)))
    events = list(SIMULATED[task]())
    for event in events:
        assert encode_line(decode_line(encode_line(event))) == encode_line(event)
    # a row goes on alone after the comparison only where it parts early
    skipped = [i for i, name in enumerate(kinds(real.events)) if name == "WordToken"]
    assert set(kinds(events)) == set(kinds(real.events))
    assert _without_words(kinds(events)) == _without_words(kinds(real.events))
    assert bool(skipped) == ("WordToken" in kinds(events))


def _without_words(names: list[str]) -> list[str]:
    return [name for name in names if name != "WordToken"]
