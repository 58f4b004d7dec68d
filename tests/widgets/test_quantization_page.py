"""The `quantization` page without a browser: events folded, sliders moved, words and numbers against the events."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from folding import events_of, names_in
from pages import fold_all, send, walk
from quantization_layer_sim import COLUMNS, answer, histogram, layer_run
from quantization_spoken import packed_run, words_run
from quantization_whole import map_run, pareto_run, started
from words_sim import HOSTILE

from lab.events import Event
from lab.events.evaluation import TextsChosen, TextUsed
from lab.events.quantization import GridNote
from lab.events.quantization_methods import NumberFormat
from lab.experiments.quantization.params import QuantizationParams
from widgets.experiment import Desk, build_views
from widgets.exporting import make_export
from widgets.numbers import number, percent
from widgets.quantization.counted import HEADS, from_answer, rows_of
from widgets.quantization.errors_section import agreement
from widgets.quantization.figures import coverage_figures, error_figures
from widgets.quantization.formats_section import _notes
from widgets.quantization.group_section import GroupSection
from widgets.quantization.group_sizes import MOST, compared, fitting
from widgets.quantization.histogram_section import PRESETS, HistogramSection
from widgets.quantization.sentences import intro
from widgets.quantization.state import Matrix, QuantizationState
from widgets.quantization.views import QuantizationViews

Asked = list[tuple[str, dict[str, Any]]]


class Page:
    """The views with a backend that answers at once, or with one that is not there."""

    def __init__(self, *, answers: bool = True) -> None:
        self.asked: Asked = []
        self.answers = answers
        self.unreadable = False
        self.held: list[tuple[int, Callable[[], None]]] | None = None  # replies that have not come yet

        def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
            assert not of_run
            self.asked.append((name, params))
            found = {"x": 1} if self.unreadable else answer(name, params) if self.answers else None
            if self.held is None or name != "histogram":
                reply(found, "" if found is not None else "This was never asked while the run was recorded.")
            else:
                self.held.append((params["bits"], lambda: reply(found, "")))

        made = build_views("quantization", Desk(ask=ask, touch=lambda: None, lock=threading.RLock()))
        assert isinstance(made, QuantizationViews)
        self.views = made

    def run(self, events: list[Event], *, live: bool = False) -> Page:
        self.views.reset()
        for event in events:
            self.views.fold(event)
        if not live:
            self.views.settle()
        self.views.render(live=live)
        return self

    @property
    def histograms(self) -> HistogramSection:
        found = self.views.section("HistogramSection")
        assert isinstance(found, HistogramSection)
        return found

    @property
    def group(self) -> GroupSection:
        found = self.views.section("GroupSection")
        assert isinstance(found, GroupSection)
        return found

    def move(self, **values: Any) -> Page:
        send(self.histograms._controls, type="values", changed=values)
        self.views.render(live=False)
        return self

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.histograms._rows.state["rows"]
        return rows

    def text(self) -> str:
        return json.dumps([view.state for view in walk(self.views.widget)], ensure_ascii=False)


def folded(events: list[Event]) -> QuantizationState:
    return fold_all(QuantizationState, events)


def test_every_event_of_the_experiment_changes_the_state() -> None:
    modules = (
        "lab.events.evaluation",
        "lab.events.quantization",
        "lab.events.quantization_methods",
        "lab.events.quantization_words",
        "lab.events.words",
    )
    own = events_of(*modules)
    assert len(own) >= 20
    assert own <= names_in(QuantizationState)


def test_one_row_a_group_size_on_one_axis_with_the_run_s_own_marked() -> None:
    page = Page().run(list(layer_run()))
    rows, state = page.rows(), page.histograms._rows.state
    assert [r["label"] for r in rows] == ["one scale a row", *(f"groups of {s}" for s in (288, 192, 64, 32, 16))]
    assert state["selected"] == "round to nearest, 4 bits, groups of 64"
    assert state["low"] == -state["high"]
    assert all(sum(r["counts"]) + r["below"] + r["above"] == 96 * COLUMNS for r in rows)
    assert all(state["high"] >= max(r["most"], r["bound"]) for r in rows)
    assert [head[0] for head in state["heads"]] == [head for head, _ in HEADS]
    assert len(rows[0]["cells"]) == len(HEADS)
    errors = [r["most"] for r in rows]
    assert errors == sorted(errors, reverse=True)
    assert rows[-1]["cells"][-1] == "5"  # 4 + 16 / 16: the scale is counted


def test_axis_is_cut_to_the_errors_and_no_count_is_lost() -> None:
    fine, _ = histogram("16", bits=8)
    rows, reach = rows_of([(fine, ())])
    assert reach < 0.1 < fine.high
    assert sum(rows[0].counts) == 96 * COLUMNS
    assert len(rows[0].counts) % 2 == 0


def test_sliders_ask_and_the_last_picture_stays_until_the_answer_comes() -> None:
    page = Page().run(list(layer_run()))
    before = len(page.asked)
    page.move(bits=3)
    assert page.asked[before][0] == "histogram"
    assert page.asked[before][1]["bits"] == 3
    assert page.rows()[0]["id"] == "round to nearest, 3 bits, one scale a row"
    assert "not in the run" in page.histograms._source.state["lines"][0][1]
    page.answers = False
    page.move(bits=2)
    assert page.rows()[0]["id"] == "round to nearest, 3 bits, one scale a row"
    assert "never asked" in page.histograms._source.state["lines"][0][1]
    page.move(bits=4)
    assert page.histograms._source.state["lines"][0][1].startswith("MEASURED in the run")


def test_moving_the_group_size_alone_asks_nothing_new_of_the_run_s_rows() -> None:
    page = Page().run(list(layer_run()))
    asked = [a for a in page.asked if a[0] == "histogram"]
    page.move(group_size="16")
    assert page.histograms._rows.state["selected"].endswith("groups of 16")
    assert [a for a in page.asked if a[0] == "histogram"] == asked


def test_a_clicked_outlier_shows_its_group() -> None:
    page = Page().run(list(layer_run()))
    worst = page.histograms.worst()
    send(page.histograms._rows, type="dot", id="round to nearest, 4 bits, groups of 64", index=2)
    page.views.render(live=False)
    assert page.histograms.picked == worst[2]
    name, params = page.asked[-1]
    assert (name, params["row"], params["group"]) == ("group", worst[2].row, worst[2].group)
    shown = page.group._plot.state["data"]
    assert len(shown["points"]["x"]) == 64
    assert shown["marked"]["x"] == [worst[2].column]
    assert shown["marked"]["before"] == [pytest.approx(worst[2].before)]
    words = " ".join(text for _, text in page.group._words.state["lines"])
    assert f"Column {worst[2].column}" in words
    assert "one step is s" in words


def test_the_worst_group_is_shown_before_any_click() -> None:
    page = Page().run(list(layer_run()))
    assert page.group._plot.state["data"]["marked"]["x"] == [page.histograms.worst()[0].column]
    send(page.group._controls, type="values", changed={"row": 7, "group": 1})
    page.views.render(live=False)
    assert page.asked[-1][1]["row"] == 7
    assert page.group._plot.state["data"]["points"]["x"][0] == 64


def test_a_method_that_takes_a_run_says_so() -> None:
    page = Page().run(list(layer_run(method="gptq")))
    page.move(bits=3)
    assert "GPTQ takes a run" in page.histograms._source.state["lines"][0][1]
    assert page.asked[-1][1]["method"] == "nearest" or page.asked[-2][1]["method"] == "nearest"


def test_another_run_takes_the_sliders_back_unless_a_link_set_them() -> None:
    page = Page().run(list(layer_run())).move(bits=2)
    page.run(list(layer_run()))
    assert page.histograms.values["bits"] == 2  # the same question again: the visitor's own values stay
    page.run(list(layer_run(bits=3)))
    assert page.histograms.own is None
    link = page.move(bits=2, log="log").views.link()
    other = Page().run(list(layer_run()))
    other.views.restore(link)
    other.run(list(layer_run(bits=3)))
    assert other.histograms.values["bits"] == 2
    assert other.histograms.log


@pytest.mark.parametrize("look", ['{"bits": 99}', '{"layer": true}', "[1]", "{", '{"method": "<b>"}', '{"kind": 3}'])
def test_what_does_not_fit_in_a_link_is_ignored(look: str) -> None:
    page = Page().run(list(layer_run()))
    page.views.restore({"look": look, "format_value": "x", "size_bits": 99, "size_model": "no"})
    page.views.render(live=False)
    assert page.histograms.own is None


def test_the_model_s_own_grid_is_named_on_every_page() -> None:
    page = Page().run(list(layer_run()))
    assert "not one weight changed, the error is exactly 0" in page.text()
    assert any("Q4_1" in words for words, _ in PRESETS)
    note = GridNote(grid="Q4_1", checked="layer 0 q_proj", changed=0.0, max_error=0.0, words="These lie on Q4_1")
    for run in (map_run, pareto_run, words_run, packed_run):
        first, *others = run()
        page = Page().run([first, note, *(e for e in others if not isinstance(e, GridNote))])
        assert page.views.state.task != "layer"
        note_box = page.views.section("GridNoteSection").widget
        assert note_box in page.views.widget.children
        shown = walk(note_box)[0]
        assert list(shown.state["lines"][0]) == ["p", "These lie on Q4_1."]
        assert "not one weight changed, the error is exactly 0" in shown.state["lines"][1][1]


def test_three_errors_and_where_they_disagree() -> None:
    state = folded(list(layer_run()))
    figures = {f["id"]: f for f in error_figures(state)}
    own = next(e for e in state.layer_errors if e.setting.share == "64")
    assert (figures["weight_error"]["value"], figures["weight_error"]["unit"]) == ("11.1", "% weight error")
    assert own.weight_error == pytest.approx(0.111, abs=5e-4)
    assert f"{figures['output_error']['value']} %" == percent(own.heldout_error)
    assert (figures["kl"]["value"], figures["kl"]["unit"]) == ("8.30", "× 10⁻⁵ nats, KL(dense ‖ quantized)")
    assert all(f["badge"] == "MEASURED" and f["title"] for f in figures.values())
    tone, text, notes = agreement(state, live=False)
    assert tone == "even"
    assert text == "The errors disagree: KL(dense ‖ quantized) against weight error, output error"
    assert "groups of 288" in notes[0]
    state.rankings.clear()
    assert agreement(state, live=False)[0] == "good"


def test_simulated_is_never_called_saved_memory() -> None:
    state = folded(list(layer_run()))
    figures = coverage_figures(state.coverage)
    assert figures[0]["badge"] == "SIMULATED"
    assert "no memory is saved" in figures[0]["note"]
    page = Page().run(list(layer_run()))
    assert '"truth": "simulated"' in page.text()
    assert "they were left dense in this run".capitalize() in page.text()


def test_hostile_words_are_data_and_no_picture_breaks() -> None:
    page = Page().run(list(layer_run(hostile=True)))
    assert HOSTILE in page.text()
    for view in walk(page.views.widget):
        json.dumps(view.state, allow_nan=False)


def test_a_run_that_is_stopped_or_has_not_begun_is_drawn() -> None:
    page = Page(answers=False)
    page.views.render(live=False)
    page.run([started()], live=True)
    assert page.rows() == []
    page.run(list(layer_run(end="stopped")))
    assert len(page.rows()) == 6
    assert page.views.steps() == page.views.planned_steps() == 6
    events = list(layer_run())[:4]
    page.run(events, live=True)
    assert len(page.rows()) == 2
    assert page.views.planned_steps() == 6


def test_an_answer_that_cannot_be_read_is_said_and_harms_nothing() -> None:
    page = Page().run(list(layer_run()))
    page.unreadable = True
    page.move(bits=5)
    assert "could not be read" in page.histograms._source.state["lines"][0][1]


def test_no_error_at_all_is_drawn_as_one() -> None:
    found = answer(
        "histogram", {"group_sizes": ["32"], "bits": 4, "layer": 0, "projection": "q_proj", "kind": "absmax"}
    )
    assert found is not None
    item = found["histograms"][0]
    item |= {"max_error": 0.0, "mean_square": 0.0, "snr_db": math.inf, "exact": 1.0}
    rows, reach = rows_of(from_answer(found))
    assert reach > 0
    assert rows[0].cells[3] == "∞"
    assert rows[0].note == "100 % exact"


def test_group_sizes_are_those_that_the_run_compares() -> None:
    for columns in (576, 1536, 768, 64, 80):
        assert all(size in (*fitting(columns), "64") for size in compared(columns, "64"))
        assert len(compared(columns, "row")) <= MOST
    assert compared(32, "32") == ["32", "16"]
    assert compared(576, "96")[2:4] == ["96", "64"]
    assert "128" not in fitting(576)
    assert "128+rest" in fitting(576)


def test_tables_and_export_hold_all_that_is_drawn() -> None:
    page = Page().run(list(layer_run()))
    tables = {t.name: t for t in page.views.tables()}
    assert {"error_histograms", "group", "layer_errors", "model_errors", "levels", "number_formats", "coverage"} <= set(
        tables
    )
    for table in tables.values():
        assert all(len(row) == len(table.head) for row in table.rows), table.name
    name, data, _ = make_export("csv", "quantization", None, page.views.tables())
    assert name == "quantization.csv"
    assert b"error_histograms" in data


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (3.1e-6, "3.10 × 10⁻⁶"),
        (-0.25, "−0.250"),
        (math.inf, "∞"),
        (math.nan, "–"),
        (None, "–"),
        (4.25, "4.25"),
    ],
)
def test_numbers(value: float | None, written: str) -> None:
    assert number(value) == written


def test_the_intro_names_texts_and_the_mistake() -> None:
    said = intro(folded([started(break_run="neighbour_scales"), *list(layer_run())[1:]]))
    assert any("0123456789ab" in text for text in said)
    assert said[-1].startswith("Broken on purpose: take the scale of the next group.")


def test_the_intro_keeps_the_capitals_of_one_text() -> None:
    one = TextsChosen(texts=(TextUsed("held-out", "Python's help topics", "0123456789ab", 512),))
    said = intro(folded([started(task="map"), one]))
    assert said[1].startswith("Held-out text: 512 tokens of Python's")


def test_formats_that_were_scaled_are_counted() -> None:
    one = NumberFormat("INT8", 8, 127.0, 1.0, 1.0, 1.0, 0.011, 0, True)
    assert "INT8 was scaled" in _notes((one,), "a matrix")[0]
    assert "FP8, INT8 were scaled" in _notes((replace(one, name="FP8"), one), "a matrix")[0]


def test_matrix_titles_and_defaults() -> None:
    assert Matrix(3, "o_proj").title == "layer 3 o_proj"
    assert QuantizationState().task == QuantizationParams.model_validate({}).task == "layer"
    assert QuantizationState().steps == 0
