"""The `lora` page without a browser: events folded, every task drawn, hostile and empty runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folding import events_of, names_in
from lora_answers import ANSWERS, EXAMPLE
from lora_pages import RUNS, Page
from lora_runs import compare_run, ends, started, swap_run
from pages import fold_all, walk
from words_sim import HOSTILE

from lab.events import Recording
from lab.experiments.lora.params import PRESETS, LoraParams
from lab.strings import strings
from widgets.lora.lesson import sections as lesson_sections
from widgets.lora.poster import body
from widgets.lora.state import ADAPTER, BASE, MERGED, LoraState
from widgets.lora.views import LAYOUT


def test_every_event_of_the_experiment_changes_the_state() -> None:
    own = events_of("lab.events.lora", "lab.events.evaluation", "lab.events.words")
    assert len(own) >= 12
    assert own <= names_in(LoraState)


def test_an_event_that_nobody_folds_would_be_seen() -> None:
    assert not events_of("lab.events.pruning") <= names_in(LoraState)


@pytest.mark.parametrize("task", RUNS)
@pytest.mark.parametrize("end", ["finished", "stopped", "failed"])
def test_every_task_is_drawn_after_every_event(task: str, end: str) -> None:
    page = Page(ANSWERS)
    events = list(RUNS[task](end=end))
    page.views.reset()
    for number, event in enumerate(events):
        page.views.fold(event)
        if number % 7 == 0 or number == len(events) - 1:
            page.views.render(live=event is not events[-1])
    page.views.settle()
    page.views.render(live=False)
    assert page.views.state.task == task
    assert page.views.steps() > 0 or (task, end) == ("compare", "failed")
    tables = page.views.tables()
    assert tables
    assert all(len(row) == len(table.head) for table in tables for row in table.rows)
    json.dumps([view.state for view in walk(page.views.widget)], allow_nan=False)


@pytest.mark.parametrize("task", RUNS)
def test_an_empty_run_says_so(task: str) -> None:
    page = Page().run([started(task=task)], live=True)
    assert page.views.steps() == 0
    page.run([started(task=task), ends("failed")])
    assert page.views.tables() == []
    assert "never asked" in page.text()


def test_all_sections_of_the_layout_are_built_by_some_run() -> None:
    built: set[str] = set()
    for make in RUNS.values():
        built |= {type(section).__name__ for section in Page(ANSWERS).run(list(make())).views._shown()}
    assert built == {name.split(":")[1] for names in LAYOUT.values() for name in names}


def test_hostile_text_travels_as_text_and_the_poster_escapes_it() -> None:
    events = list(compare_run(label=HOSTILE, base=HOSTILE))
    page = Page(ANSWERS).run(events)
    assert HOSTILE in page.text()
    assert "\u202e" not in json.dumps([v.state for v in walk(page.views.section("AdapterSection").widget)])
    still = body(Recording(tuple(events), ()))
    assert "<img" not in still
    assert "&lt;img" in still
    swapped = Page(ANSWERS).run(list(swap_run()))
    assert HOSTILE in swapped.text()


@pytest.mark.parametrize("task", RUNS)
def test_a_recording_has_a_poster(task: str) -> None:
    still = body(Recording(tuple(RUNS[task]()), ()))
    assert "460,800" in still
    assert "<svg" in still
    assert "<figure>" in body(Recording((started(task=task), ends("failed")), ()))


def test_the_base_is_called_base_whatever_events_call_it() -> None:
    state = fold_all(LoraState, compare_run())
    assert list(state.words) == [BASE, ADAPTER, MERGED]
    assert [v.name for v in state.others] == [ADAPTER, MERGED]
    assert "dense" not in state.variants


def test_the_lesson_s_example_is_that_of_the_code_or_still_to_come() -> None:
    worked = lesson_sections(strings(), EXAMPLE)[2]
    assert worked["table"]["rows"][-1] == ["x W′", "(5, 7)"]
    for example in (None, {"merged": 3}):
        assert "table" not in lesson_sections(strings(), example)[2]
    references = lesson_sections(strings(), None)[-1]["paragraphs"][0]
    assert all(name in references for name in ("Hu et al. 2021", "Kalajdzievski 2023", "QLoRA"))


def test_presets_are_valid_and_the_notebook_shows_the_page() -> None:
    for preset in PRESETS:
        LoraParams(**preset.params)
    cells = json.loads((Path(__file__).parents[2] / "notebooks" / "lora.ipynb").read_text())["cells"]
    assert 'dashboard("lora")' in "".join(cells[-1]["source"])
