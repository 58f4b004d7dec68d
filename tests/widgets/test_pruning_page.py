"""The `pruning` page without a browser: events folded, every task drawn, words and numbers against the events."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folding import events_of, names_in
from pages import drawn, fold_all, quiet_desk, send, walk
from pruning_answers import EXAMPLE
from pruning_sim import ends, errors, masks_run, setting, started, stored, whole_model
from pruning_sim_runs import curve_run, recover_run, savings_run, words_run
from words_sim import HOSTILE

from lab.events import Event, Recording
from lab.events.pruning import CurvePoint, LayersPruned, PrunedCoverage, RecoveryStep, SparseGptReplay, SparsityCell
from lab.experiments.pruning.params import PRESETS, PruningParams
from lab.strings import strings
from widgets.experiment import Desk, build_views
from widgets.pruning.coverage_section import parts
from widgets.pruning.curve_measures import MEASURES, dense_points, measured
from widgets.pruning.curve_plot import EDGE, apart
from widgets.pruning.curve_section import CurveSection, curve_table, curve_verdict
from widgets.pruning.errors_section import error_rows, errors_verdict
from widgets.pruning.example_section import ExampleSection, checked, told
from widgets.pruning.lesson import sections as lesson_sections
from widgets.pruning.map_section import MapSection
from widgets.pruning.poster import body
from widgets.pruning.recovery_section import RecoverySection, best_words, regained
from widgets.pruning.savings_section import SavingsSection, savings_verdict
from widgets.pruning.state import PruningState
from widgets.pruning.storage_section import form_rows, form_words, stored_verdict
from widgets.pruning.views import LAYOUT, PruningViews

RUNS: dict[str, Callable[..., Any]] = {
    "masks": masks_run,
    "curve": curve_run,
    "words": words_run,
    "savings": savings_run,
    "recover": recover_run,
}


class Page:
    """The views with answers by the name of a question, or with a backend that is not there."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

        def ask(name: str, params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
            assert of_run is (name == "enough")
            self.asked.append((name, params))
            found = (answers or {}).get(name)
            reply(found, "" if found is not None else "This was never asked while the run was recorded.")

        made = build_views("pruning", Desk(ask=ask, touch=lambda: None, lock=threading.RLock()))
        assert isinstance(made, PruningViews)
        self.views = made

    def run(self, events: list[Event], *, live: bool = False) -> Page:
        self.views.reset()
        for event in events:
            self.views.fold(event)
        if not live:
            self.views.settle()
        self.views.render(live=live)
        return self

    def text(self) -> str:
        return json.dumps([view.state for view in walk(self.views.widget)], ensure_ascii=False)


def test_every_event_of_the_experiment_changes_the_state() -> None:
    own = events_of("lab.events.pruning", "lab.events.evaluation", "lab.events.words")
    assert len(own) >= 15
    assert own <= names_in(PruningState)


def test_an_event_that_nobody_folds_would_be_seen() -> None:
    assert not events_of("lab.events.quantization") <= names_in(PruningState)


@pytest.mark.parametrize("task", RUNS)
@pytest.mark.parametrize("end", ["finished", "stopped", "failed"])
def test_every_task_is_drawn_after_every_event(task: str, end: str) -> None:
    page = Page({"worked_example": EXAMPLE})
    events = list(RUNS[task](end=end))
    page.views.reset()
    for number, event in enumerate(events):
        page.views.fold(event)
        if number % 5 == 0 or number == len(events) - 1:
            page.views.render(live=event is not events[-1])
    page.views.settle()
    page.views.render(live=False)
    assert page.views.state.task == task
    assert page.views.steps() > 0
    tables = page.views.tables()
    assert tables
    assert all(len(row) == len(table.head) for table in tables for row in table.rows)
    json.dumps([view.state for view in walk(page.views.widget)], allow_nan=False)


@pytest.mark.parametrize("task", RUNS)
def test_an_empty_run_says_so(task: str) -> None:
    page = Page().run([started(task=task)], live=True)
    assert page.views.steps() == 0
    page.run([started(task=task), ends("failed")])
    assert page.text()
    assert page.views.tables() == []


def test_all_sections_of_the_layout_are_built_by_some_run() -> None:
    built: set[str] = set()
    for task, make in RUNS.items():
        page = Page({"worked_example": EXAMPLE}).run(list(make()))
        built |= {type(section).__name__ for section in page.views._shown()}
        assert page.views.state.task == task
    assert built == {name.split(":")[1] for names in LAYOUT.values() for name in names}


def test_hostile_text_travels_as_text_and_the_poster_escapes_it() -> None:
    events = list(masks_run(label=HOSTILE))
    page = Page({"worked_example": EXAMPLE}).run(events)
    assert HOSTILE in page.text()
    still = body(Recording(tuple(events), ()))
    assert "<img" not in still
    assert "&lt;img" in still
    assert still.count("<path") == 2


def test_an_empty_recording_has_a_poster() -> None:
    assert "<figure>" in body(Recording((started(task="masks"), ends("failed")), ()))


def test_the_least_error_comes_first_and_what_is_no_number_last() -> None:
    made = [errors(m) for m in ("random", "wanda", "magnitude", "sparsegpt")]
    broken = replace(made[0], calibration_error=math.nan, heldout_error=math.inf)
    rows = error_rows([*made[1:], broken])
    assert [r.label.split(",")[0] for r in rows] == ["SparseGPT", "Wanda", "Magnitude", "At random"]
    assert rows[-1].note == "not measured"
    tone, text, note = errors_verdict(made, live=False)
    assert (tone, text) == ("good", "Least lost on held-out text: SparseGPT, 50\u00a0%, 9.43\u00a0%")
    assert note.startswith("0.41 times")
    assert errors_verdict(made[:1], live=True)[0] == "pending"


def test_bytes_name_the_smallest_form_and_refuse_what_does_not_fit() -> None:
    dense = stored(setting("wanda", 0.5))
    rows = {r.label: r for r in form_rows(dense)}
    assert rows["2:4 packed"].note == "not for this mask"
    assert rows["CSR"].cells[2] == "33.4 %"
    assert rows["rows removed"].note == "no row is all zeros"
    assert "whole rows that are all zeros" in form_words(dense.forms[-1])
    assert "so none can go" not in form_words(dense.forms[-1])
    assert stored_verdict(dense, "good", "")[1].startswith("Smallest: bitmap + values")
    nothing = stored(setting("wanda", 0.0))
    assert stored_verdict(nothing, "good", "")[0] == "even"
    csr = next(r for r in form_rows(nothing) if r.label == "CSR")
    assert csr.bars[0].value > dense.weights * 4


def test_the_curve_tells_what_can_go_and_what_was_skipped() -> None:
    state = fold_all(PruningState, curve_run(methods=("magnitude", "wanda", "sparsegpt")))
    _, text, duel, part = curve_verdict(state.curve, live=False, ended=True)
    assert text.startswith("Up to 50.0 % can go within 0.1 nats")
    assert duel.startswith("At 50.0 %, in nats: SparseGPT")
    assert part == ""
    assert curve_verdict(state.curve[:2], live=True, ended=False)[3].startswith("After 2 of")
    page = Page().run(list(curve_run(methods=("magnitude", "wanda", "sparsegpt"))))
    assert "It takes longer than the run may" in page.text()
    strange = replace(state.curve[0], divergence=replace(_divergence(state.curve[0]), kl=math.inf, perplexity=None))
    Page().run([started(task="curve"), strange, ends()])


@pytest.mark.parametrize("measure", MEASURES)
def test_each_line_of_the_curve_begins_with_the_dense_model(measure: str) -> None:
    state = fold_all(PruningState, curve_run())
    section = CurveSection(quiet_desk())
    section.restore({"curve_measure": measure})
    assert section.link() == {"curve_measure": None if measure == "kl" else measure}
    section.render(state, state.steps - 1, live=False)
    shown = section._plot.state
    of = MEASURES[measure].of
    figures = [of(_divergence(p)) for p in state.curve]
    least = min(f for f in figures if f > 0)
    dense = _divergence(state.curve[0]).dense_perplexity if measure == "perplexity" else least / EDGE
    for method in ("magnitude", "wanda"):
        own = sorted((p for p in state.curve if p.setting.method == method), key=lambda p: p.sparsity)
        line = shown["data"][method]
        assert line["x"] == pytest.approx([0.0, *(p.sparsity * 100 for p in own)])
        assert line["y"] == pytest.approx([dense, *(max(of(_divergence(p)), dense) for p in own)])
        assert line["y"][1:] != pytest.approx([_divergence(p).worst_kl for p in own])  # the mutation
        assert line["label"][0] == "dense"
    assert shown["data"]["random"]["x"] == []  # what was not measured has no line at all
    assert shown["props"]["title"]["text"] == MEASURES[measure].axis
    assert shown["props"]["y_range"]["start"] < dense
    table = curve_table(state.curve)
    assert [row[:3] for row in table.rows if row[2] == 0.0] == [["dense", "dense", 0.0]]
    assert table.rows[0][3:6] == [0.0, 0.0, 0]


def test_a_method_measured_at_sparsity_0_has_no_second_point_there() -> None:
    first, *rest = fold_all(PruningState, curve_run()).curve
    at_0 = [replace(first, sparsity=0.0), *rest]
    assert {p.setting.method for p in dense_points(at_0)} == {p.setting.method for p in rest} - {first.setting.method}
    assert dense_points([]) == []
    assert dense_points([replace(first, divergence=None, skipped="why")]) == []
    assert len(measured(at_0)) == len(at_0)


def _divergence(point: CurvePoint) -> Any:
    assert point.divergence is not None
    return point.divergence


def test_names_of_lines_are_apart_and_within_the_plot() -> None:
    assert apart([0.0, 1.0, 2.0], 10, 100) == [0.0, 10.0, 20.0]
    assert apart([95.0, 96.0, 97.0], 10, 100) == [80.0, 90.0, 100.0]


def test_a_map_of_one_sparsity_is_on_the_whole_scale_and_one_that_varies_on_its_own() -> None:
    def scale(even: bool) -> list[str]:
        state = fold_all(PruningState, [started(task="words"), *whole_model(setting("wanda"), 4, even=even)])
        section = drawn(MapSection, state)
        texts: list[str] = section._plot.state["data"]["names"]["text"]
        return texts

    assert scale(True) == ["0 %", "100 %"]
    assert scale(False) != ["0 %", "100 %"]


def test_a_matrix_without_weights_is_an_empty_place() -> None:
    cells = (SparsityCell(0, "q_proj", 0, 0, math.nan, math.nan), SparsityCell(0, "no_such", 4, 2, 0.1, 0.1))
    state = fold_all(PruningState, [started(task="words"), LayersPruned(setting=setting(), cells=cells)])
    section = drawn(MapSection, state)
    assert section._plot.state["data"]["none"]["x"] == [0, 0]  # the matrix, and the key above the map
    assert "not measured" in section._plot.state["data"]["names"]["text"]
    assert section._plot.state["data"]["cells"]["x"] == []


def test_zeros_do_not_gain_and_removed_rows_do() -> None:
    state = fold_all(PruningState, savings_run())
    tone, text, lost, note = savings_verdict(state, live=False)
    assert (tone, text) == ("bad", "Rows removed, 50\u00a0%: 1.50 times as fast as dense")
    assert lost.startswith("Lost for it: KL 5.20 nats, perplexity ")
    assert lost.endswith("more than 0.1 nats, which we call bearable.")
    assert note == "No gain: zeros in place."
    section = drawn(SavingsSection, state)
    rows = {r["label"]: r for r in section._decode.state["rows"]}
    assert rows["2:4 kernel"]["note"] == "not here"
    assert "no CPU kernel reads 2:4" in json.dumps(section._why.state)
    untimed = replace(state.timed_figures["2:4"], words="not run: the GPU has a kernel, which was not timed")
    state.timed_figures["2:4"] = untimed
    rows = {r["label"]: r for r in drawn(SavingsSection, state)._decode.state["rows"]}
    assert rows["2:4 kernel"]["note"] == "not run"
    figures = {f["id"]: f for f in section._figures.state["figures"]}
    assert (figures["zeros"]["value"], figures["smaller"]["value"]) == ("0.99", "1.50")
    assert "KL 0.620 nats" in figures["zeros"]["note"]
    assert all("KL 5.20 nats" in figures[name]["note"] for name in ("smaller", "resident"))
    for table in (section._decode, section._prefill, section._memory):
        cells = {r["label"]: r["cells"][-1] for r in table.state["rows"] if not r["note"]}
        assert cells == {"dense": "0", "zeros in place": "0.620", "rows removed, 50\u00a0%": "5.20"}


def test_a_stopped_race_says_that_nothing_was_measured() -> None:
    state = fold_all(PruningState, savings_run(end="stopped"))
    assert savings_verdict(state, live=False)[1] == "The run ended before it was measured."
    assert drawn(SavingsSection, state)._decode.state["rows"]


def test_recovery_tells_what_came_back_and_a_revived_zero() -> None:
    good = Page().run(list(recover_run()))
    assert "Training won back 50.0 % of the loss" in good.text()
    bad = Page().run(list(recover_run(revived=3)))
    assert "3 pruned weights are no longer 0." in bad.text()
    ended = Page().run(list(recover_run(stopped="stopped", upto=6)))
    assert "Ended early: stopped. The best so far was kept." in ended.text()
    assert "Ended early" not in good.text()
    state = fold_all(PruningState, recover_run())
    assert state.recovered is not None
    assert regained(replace(state.recovered, pruned=replace(state.recovered.pruned, kl=0.0))) is None


def test_a_stopped_fine_tune_says_what_its_best_step_had_reached() -> None:
    stopped = Page().run(list(recover_run(end="stopped", upto=9))).text()
    loss = 4.1 - 0.6 * (1 - math.exp(-1))
    assert (
        f"The best so far, after step 8: {loss:.2f} nats a held-out token, perplexity {math.exp(loss):.1f}; " in stopped
    )
    assert f"{math.exp(4.1):.1f} before the fine-tune." in stopped
    at_once = Page().run(list(recover_run(end="stopped", upto=0))).text()
    assert f"No step was better than none so far: held-out perplexity {math.exp(4.1):.1f}." in at_once
    assert "The best so far, after" not in at_once
    never = [e for e in recover_run(end="stopped") if not isinstance(e, RecoveryStep)]
    assert best_words([]) == ""
    assert "The run ended before the training did" in Page().run(never).text()


def test_a_fine_tune_can_be_ended_with_the_best_so_far() -> None:
    page = Page({"enough": {"training": True}})
    events = list(recover_run(upto=6))
    page.run(events[: max(i for i, e in enumerate(events) if isinstance(e, RecoveryStep)) + 1], live=True)
    section = page.views.section("RecoverySection")
    assert isinstance(section, RecoverySection)
    figures = {f["id"]: f for f in section._figures.state["figures"]}
    assert figures["perplexity"]["note"] == f"after step 4; {math.exp(4.1):.1f} before"
    assert figures["step_ms"]["unit"] == "ms a step"
    send(section._enough.widget, type="action", id="enough")
    assert ("enough", {}) in page.asked
    page.views.render(live=True)
    assert "ends after this step" in page.text()
    page.run(events)
    assert section._enough.widget.state["actions"] == []
    assert "ends after this step" not in page.text()


def test_a_loss_that_no_number_can_hold_has_no_perplexity() -> None:
    events = [replace(e, heldout_loss=1e4) if isinstance(e, RecoveryStep) else e for e in recover_run(end="stopped")]
    page = Page().run(events)
    assert "perplexity n/a" in page.text()


def test_a_replay_whose_arrays_do_not_fit_is_refused_in_words() -> None:
    events = list(masks_run())
    broken = [replace(e, score=e.spread) if isinstance(e, SparseGptReplay) else e for e in events]
    assert "its arrays do not fit one another" in Page().run(broken).text()
    assert "its arrays do not fit one another" not in Page().run(events).text()


def test_the_bar_of_parameters_is_whole() -> None:
    state = fold_all(PruningState, words_run())
    coverage = state.coverage
    assert isinstance(coverage, PrunedCoverage)
    shares = parts(coverage)
    assert math.isclose(sum(p.share for p in shares), 1.0, abs_tol=1e-3)
    assert math.isclose(sum(p.share for p in shares if p.quantized), coverage.pruned / coverage.parameters)


def test_the_worked_example_goes_step_by_step() -> None:
    page = Page({"worked_example": EXAMPLE}).run(list(masks_run()))
    section = page.views.section("ExampleSection")
    assert isinstance(section, ExampleSection)
    assert [[c[0] for c in row] for row in section._view.state["rows"]] == [["0.5", "0", "0.3"], ["0", "−0.8", "0"]]
    assert "Half of 6 is 3: all up to |w| = 0.2 go." in told(checked(EXAMPLE), 3)
    assert "never asked" in Page().run(list(masks_run())).text()
    with pytest.raises((KeyError, TypeError, ValueError)):
        checked({**EXAMPLE, "kept": [[True]]})


def test_the_lesson_s_example_is_that_of_the_code_or_still_to_come() -> None:
    worked = lesson_sections(strings(), EXAMPLE)[2]
    assert len(worked["table"]["rows"]) == sum(map(len, EXAMPLE["weights"]))
    for example in (None, {"weights": 3}):
        assert "table" not in lesson_sections(strings(), example)[2]


def test_presets_are_valid_and_the_notebook_shows_the_page() -> None:
    for preset in PRESETS:
        PruningParams(**preset.params)
    cells = json.loads((Path(__file__).parents[2] / "notebooks" / "pruning.ipynb").read_text())["cells"]
    assert 'dashboard("pruning")' in "".join(cells[-1]["source"])
