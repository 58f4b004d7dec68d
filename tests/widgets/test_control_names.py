"""Every control of a page has a name that no other control on it has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from lora_answers import ANSWERS
from lora_pages import RUNS as LORA
from lora_pages import Page as LoraPage
from pages import quiet_desk, walk
from pruning_sim import masks_run
from pruning_sim_runs import curve_run, recover_run, savings_run, words_run

from lab.experiments.lora.params import LoraParams
from lab.experiments.pruning.params import PruningParams
from widgets.controls import Controls
from widgets.experiment import ExperimentViews
from widgets.pruning.views import PruningViews

PRUNING: dict[str, Any] = {
    "masks": masks_run,
    "curve": curve_run,
    "words": words_run,
    "savings": savings_run,
    "recover": recover_run,
}


def names_in_sections(views: ExperimentViews) -> list[str]:
    """Titles of all fields of the page's own forms, shown or not."""
    forms = [view for view in walk(views.widget) if isinstance(view, Controls)]
    return [field["title"] for form in forms for field in form.state["schema"].get("properties", {}).values()]


def names_in_form(params: type[LoraParams] | type[PruningParams], task: str) -> list[str]:
    """Titles of the fields of an experiment that are shown for a task."""
    fields = params.model_json_schema()["properties"].values()
    shown = [f for f in fields if task in _listed(f.get("when", {}).get("task", task))]
    return [field["title"] for field in shown]


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


@pytest.mark.parametrize("task", PRUNING)
def test_no_two_controls_of_the_pruning_page_have_one_name(task: str) -> None:
    views = PruningViews(quiet_desk())
    for event in PRUNING[task]():
        views.fold(event)
    views.render(live=False)
    assert twice(names_in_form(PruningParams, task) + names_in_sections(views)) == []


@pytest.mark.parametrize("task", LORA)
def test_no_two_controls_of_the_lora_page_have_one_name(task: str) -> None:
    views = LoraPage(ANSWERS).run(list(LORA[task]())).views
    assert twice(names_in_form(LoraParams, task) + names_in_sections(views)) == []


def test_a_name_that_is_there_twice_is_seen() -> None:
    assert twice([*names_in_form(LoraParams, "compare"), "Scale of the update"]) == ["Scale of the update"]
