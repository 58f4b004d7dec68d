"""Each part of a LoRA run says which stage of how many it is; no stage goes unplanned."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lora_given import learn, made, on_disk, ran

from lab.events import Progress
from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.stages import CHECKING, stages_of

if TYPE_CHECKING:
    from experiment_runs import Ran

    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PART = "unmerging by subtraction"
"""Of a stage that has no number of its own."""
SHORT = {"singular values", CHECKING}
"""Of a tiny model these end before there is anything to tell."""


def check(run: Ran, plan: list[str]) -> None:
    found = run.of(Progress)
    numbers = [event.number for event in found]
    assert numbers == sorted(numbers)
    assert {event.stages for event in found} == {len(plan)}
    for event in found:
        assert event.stage == PART or fnmatchcase(event.stage, plan[event.number - 1]), event
    assert {plan[i] for i in set(range(len(plan))) - {n - 1 for n in numbers}} <= SHORT


def test_training_counts_its_stages(tiny: Tiny) -> None:
    run = learn(tiny("llama"))
    check(run, stages_of(LoraParams(task="train")))
    with pytest.raises(AssertionError):  # the mutation: a plan that forgets a stage
        check(run, [stage for stage in stages_of(LoraParams(task="train")) if stage != "training"])


@pytest.mark.parametrize(
    "given",
    [
        {"task": "compare"},
        {"task": "compare", "factor": 0.5},
        {"task": "swap"},
        {"task": "merge", "base": "float32"},
        {"task": "merge", "base": "bfloat16"},
        {"task": "merge", "base": "int4"},
    ],
    ids=lambda g: "-".join(map(str, g.values())),
)
def test_the_other_tasks_count_theirs(tiny: Tiny, tmp_path: Path, given: dict[str, Any]) -> None:
    model = tiny("llama")
    path = on_disk(tmp_path, made(model))
    check(ran(model, adapter=path, **given), stages_of(LoraParams(**given)))
