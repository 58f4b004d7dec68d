"""What the `quantization` page offers to run: a method that cannot follow the sliders, and another model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pages import send, walk
from quantization_layer_sim import answer, histogram, layer_run
from samples import sample_facts

from lab.events import ArrayData, Event, ModelFacts
from lab.events.quantization import ErrorHistogram, Setting, WorstWeights
from widgets.action_row import ActionRow
from widgets.experiment import Desk
from widgets.quantization.counted import on_one_axis
from widgets.quantization.grid_note import GridNoteSection
from widgets.quantization.histogram_section import HistogramSection
from widgets.quantization.other_models import MOST, fitted
from widgets.quantization.views import QuantizationViews

SMALL = replace(sample_facts(), id="org/small", name="Small", source="hub", grid=None, hidden=80)


def gptq_run(**params: Any) -> list[Event]:
    """The layer run with GPTQ's name on it."""

    def named(setting: Setting) -> Setting:
        return replace(setting, method="gptq", label=setting.label.replace("round to nearest", "GPTQ"))

    return [
        replace(event, setting=named(event.setting)) if isinstance(event, ErrorHistogram | WorstWeights) else event
        for event in layer_run(method="gptq", **params)
    ]


class Page:
    """The page with a backend that knows `models`; what was started is kept."""

    def __init__(self, models: Sequence[ModelFacts] | None = (), *, can_start: bool = True) -> None:
        self.started: list[tuple[dict[str, Any], str]] = []
        self.models = models

        def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
            del of_run
            reply(answer(name, params), "")

        def start(params: Mapping[str, Any], model: str) -> None:
            self.started.append((dict(params), model))

        desk = Desk(ask=ask, touch=lambda: None, lock=threading.RLock(), models=lambda: self.models)
        desk.start = start if can_start else None
        self.views = QuantizationViews(desk)

    def run(self, events: Sequence[Event]) -> Page:
        for event in events:
            self.views.fold(event)
        self.views.settle()
        self.views.render(live=False)
        return self

    def move(self, **values: Any) -> Page:
        send(self.histograms._controls, type="values", changed=values)
        self.views.render(live=False)
        return self

    @property
    def histograms(self) -> HistogramSection:
        found = self.views.section("HistogramSection")
        assert isinstance(found, HistogramSection)
        return found

    @property
    def note(self) -> tuple[list[str], ActionRow]:
        """The grid note's lines and its buttons."""
        found = self.views.section("GridNoteSection")
        assert isinstance(found, GridNoteSection)
        words, row = walk(found.widget)
        assert isinstance(row, ActionRow)
        return [text for _, text in words.state["lines"]], row


def labels(row: ActionRow) -> list[str]:
    return [action["label"] for action in row.state["actions"]]


def test_a_method_that_takes_a_run_keeps_its_own_histogram_beside_the_live_ones() -> None:
    page = Page().run(gptq_run())
    assert labels(page.histograms._run_it) == []
    assert all("GPTQ" in row["id"] for row in page.histograms._rows.state["rows"])
    page.move(bits=3, group_size="32")
    rows = page.histograms._rows.state["rows"]
    assert [row["id"] for row in rows if "GPTQ" in row["id"]] == ["GPTQ, 4 bits, groups of 64"]
    assert "in the run" in rows[0]["note"]
    assert all("round to nearest, 3 bits" in row["note"] for row in rows[1:])
    assert page.histograms._rows.state["selected"] == "round to nearest, 3 bits, groups of 32"
    said = page.histograms._source.state["lines"][0][1]
    assert said.startswith("GPTQ takes a run and cannot follow the sliders: the run's own histogram stays")
    assert "round to nearest for comparison" in said
    assert page.histograms.worst()


def test_its_button_starts_that_run() -> None:
    page = Page().run(gptq_run(seed=7)).move(bits=3, group_size="32")
    row = page.histograms._run_it
    assert labels(row) == ["Run GPTQ at groups of 32, 3 bits"]
    send(row, type="action", id="run")
    send(row, type="action", id="other")
    ((params, model),) = page.started
    assert model == ""
    assert {k: params[k] for k in ("task", "method", "bits", "group_size", "layers", "seed")} == {
        "task": "layer",
        "method": "gptq",
        "bits": 3,
        "group_size": "32",
        "layers": [0],
        "seed": 7,
    }
    page.move(layer=3)
    assert labels(row) == ["Run GPTQ at groups of 32, 3 bits on layer 3 q_proj"]
    assert "here is round to nearest" in page.histograms._source.state["lines"][0][1]
    send(row, type="action", id="run")
    assert page.started[-1][0]["layers"] == [3]
    page.move(layer=0, bits=4, group_size="64")
    assert labels(row) == []


def test_a_slow_method_can_be_asked_for_from_a_quick_run() -> None:
    page = Page().run(list(layer_run())).move(method="awq")
    assert labels(page.histograms._run_it) == ["Run AWQ at groups of 64, 4 bits"]
    assert all("round to nearest" in row["id"] for row in page.histograms._rows.state["rows"])
    still = Page(can_start=False).run(list(layer_run())).move(method="awq")
    assert labels(still.histograms._run_it) == []


def test_histograms_of_two_axes_are_drawn_on_the_wider_one() -> None:
    fine, _ = histogram("64")
    bins = fine.counts.shape[0]
    counts = np.arange(bins, dtype=np.int64)
    narrow = replace(fine, low=-0.25, high=0.25, counts=ArrayData.of(counts, "int64"))
    (wide, _), (made, _) = on_one_axis([(fine, ()), (narrow, ())])
    assert wide is fine
    assert (made.low, made.high) == (fine.low, fine.high)
    found = made.counts.numpy()
    assert found.sum() == counts.sum()
    assert list(found[bins // 4 : 3 * bins // 4]) == list(counts.reshape(-1, 2).sum(1))
    assert on_one_axis([]) == []


def test_each_model_off_the_grid_has_a_button_that_runs_the_same_there() -> None:
    gridded = replace(SMALL, id="b", name="Gridded", grid="Q4_0, groups of 32")
    absent = replace(SMALL, id="c", name="Absent", present=False)
    page = Page([sample_facts(), gridded, absent, SMALL]).run(list(layer_run(bits=3, group_size="16", layers=(2, 29))))
    lines, row = page.note
    assert labels(row) == ["Run on Small"]
    assert "no known grid" in lines[-1]
    send(row, type="action", id="org/small")
    ((params, model),) = page.started
    assert model == "org/small"
    assert (params["bits"], params["group_size"], params["layers"]) == (3, "16", [2, 29])


def test_where_there_is_none_it_says_so_and_how_to_get_one() -> None:
    page = Page([sample_facts()]).run(list(layer_run()))
    lines, row = page.note
    assert labels(row) == []
    assert "lab models HuggingFaceTB/SmolLM2-135M-Instruct --fetch" in lines[-1]
    for unknown in (Page(None), Page([SMALL], can_start=False)):
        lines, row = unknown.run(list(layer_run())).note
        assert labels(row) == []
        assert len(lines) == 2  # nothing is claimed of models that are not known


def test_many_models_are_counted_and_namesakes_told_apart() -> None:
    many = [replace(SMALL, id=f"org/{i}", name="Twin" if i < 2 else f"Model {i}") for i in range(MOST + 2)]
    lines, row = Page(many).run(list(layer_run())).note
    assert len(labels(row)) == MOST
    assert labels(row)[:2] == ["Run on Twin, org/0", "Run on Twin, org/1"]
    assert "2 more are in the menu of models" in lines[-1]


@pytest.mark.parametrize(
    ("facts", "changed", "said"),
    [
        (replace(SMALL, layers=SMALL.layers[:2]), {"layers": [1]}, "layers 1: it has 2"),
        (SMALL, {"group_size": "16"}, "group size 16: its rows have 80 weights"),
        (replace(SMALL, architecture="GPT2LMHeadModel"), {"projection": "c_attn"}, "it has no q_proj"),
    ],
)
def test_what_cannot_be_the_same_is_changed_and_said(facts: ModelFacts, changed: dict[str, Any], said: str) -> None:
    params = {"layers": [29], "projection": "q_proj", "group_size": "64", "bits": 3}
    made, words = fitted(params, facts)
    assert changed.items() <= made.items()
    assert made["bits"] == 3
    assert any(said in text for text in words)
    assert params["layers"] == [29]
