"""The `quantization` page: what is asked and when an answer counts, and words that must be true of every run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pages import send
from quantization_layer_sim import histogram, layer_run
from quantization_spoken import packed_run, words_run
from quantization_whole import coverage, map_run, pareto_run, started
from test_quantization_page import Page, folded

from lab.events.quantization import WorstWeight
from lab.events.quantization_methods import LevelsShown
from widgets.numbers import percent
from widgets.quantization.errors_plot import MARKERS, SIGNS, ErrorsPlot, base_words
from widgets.quantization.errors_section import ErrorsSection, agreement
from widgets.quantization.figures import coverage_figures
from widgets.quantization.histogram_words import notes_of
from widgets.quantization.levels_section import levels_words
from widgets.quantization.state import QuantizationState
from widgets.quantization.tables import levels_table


def test_a_question_that_a_newer_one_displaced_is_asked_again() -> None:
    page = Page().run(list(layer_run(bits=8)))
    page.held = []
    for bits in (4, 5, 6, 5):
        page.move(bits=bits)
    assert [bits for bits, _ in page.held] == [4, 5, 6, 5]
    page.held[0][1]()  # the one in flight
    page.held[3][1]()  # the newest: the desk forgot the two between
    page.views.render(live=False)
    assert page.rows()[0]["id"] == "round to nearest, 5 bits, one scale a row"
    assert not page.histograms._rows.state["waiting"]
    asked = len(page.held)
    page.move(bits=4)
    assert len(page.held) == asked  # its answer was kept


def test_a_refusal_does_not_outlive_its_question() -> None:
    page = Page().run(list(layer_run()))
    page.answers = False
    page.move(bits=5)
    asked = len(page.asked)
    page.views.render(live=False)
    assert len(page.asked) == asked  # refused once is not asked at each drawing
    page.move(bits=6)
    page.answers = True
    page.move(bits=5)
    assert page.rows()[0]["id"] == "round to nearest, 5 bits, one scale a row"


def test_an_answer_that_comes_after_another_run_began_is_not_shown() -> None:
    page = Page().run(list(layer_run()))
    page.held = []
    page.move(bits=5)
    page.views.reset()
    assert page.histograms.columns == {}
    page.held.pop()[1]()
    for event in layer_run():
        page.views.fold(event)
    page.views.render(live=False)
    assert page.histograms.values["bits"] == 5  # the same question: the visitor's values stay, and are asked again
    assert [bits for bits, _ in page.held] == [5]
    assert page.rows() == []
    page.held.pop()[1]()
    page.views.render(live=False)
    assert page.rows()[0]["id"].startswith("round to nearest, 5 bits")


def test_errors_agree_only_where_the_run_finished() -> None:
    state = folded(list(layer_run()))
    state.rankings.clear()
    assert agreement(state, live=False)[:2] != ("none", "The run ended before all settings were compared")
    state.end = None
    assert agreement(state, live=True)[1] == "The errors agree so far"
    assert agreement(state, live=False)[:2] == ("none", "The run ended before all settings were compared")


def test_a_setting_without_an_error_does_not_empty_the_picture() -> None:
    found = folded(list(layer_run())).model_errors
    none = replace(
        found[0], mean_weight_error=0.0, mean_output_error=0.0, divergence=replace(found[0].divergence, kl=0)
    )
    plot = ErrorsPlot()
    plot.show([none, *found[1:]], ["own", "a", "b", "c"])
    assert plot.state["data"]["line0"]["x"] == []
    assert plot.state["data"]["line1"]["y"] == [1, 1, 1]  # groups of 16 have the least of each
    assert all(plot.state["data"][f"line{i}"]["x"] == [0, 1, 2] for i in (1, 2, 3))
    assert "no weight error, no output error, no KL(dense ‖ quantized)" in base_words([none, *found[1:]])
    assert base_words(found) == ""


def test_the_group_is_that_of_neighbours_and_what_the_run_did_otherwise_is_said() -> None:
    page = Page().run(list(layer_run()))
    assert page.group._words.state["lines"][0][1].startswith("MEASURED. Row")
    assert "unlike in the run" not in str(page.group._words.state["lines"])
    elsewhere = WorstWeight(row=3, column=200, before=0.1, after=0.2, group=0)  # as an activation order counts
    assert page.group._at_weight(elsewhere) == (3, 3)
    page.run(list(layer_run(method="gptq", act_order=True, static_groups=False)))
    assert "by activation order" in page.group._words.state["lines"][-2][1]
    page.run(list(layer_run(break_run="neighbour_scales")))
    assert page.group._words.state["lines"][-1][1] == "Here nothing is clipped or broken, unlike in the run."


def test_one_size_has_one_badge_and_the_coverage_names_its_setting() -> None:
    page = Page().run(list(map_run()))
    shown = page.views.section("CoverageSection")
    assert [f["id"] for f in shown._figures.state["figures"]] == ["covered"]  # type: ignore[attr-defined]
    mixed = page.views.section("MixedSection")
    badges = {f["id"]: f["badge"] for f in mixed._figures.state["figures"]}  # type: ignore[attr-defined]
    assert badges["mixed_size"] == "DERIVED"
    used = page.views.state.coverage
    assert used is not None
    assert f"Counted for {used.setting.label}." in page.text()
    for truth in ("simulated", "packed"):
        figures = coverage_figures(replace(coverage(used.setting, [4.0]), truth=truth))
        assert figures[2]["badge"] == "DERIVED"


def test_a_mistake_or_a_clip_takes_the_sliders_back_and_a_link_s_values_do_not_outlive_a_preset() -> None:
    page = Page().run(list(layer_run())).move(bits=2)
    page.run(list(layer_run(break_run="neighbour_scales")))
    assert page.histograms.own is None
    page.views.restore({"look": '{"bits": 2}'})
    send(page.histograms._controls, type="preset", index=3)
    page.run(list(layer_run()))
    assert page.histograms.own is None


def test_a_stopped_run_does_not_say_that_something_follows() -> None:
    stale = ("being made", "come as they", "being packed", "follow at the end", "being asked for", "Points appear")
    for run in (map_run, pareto_run, words_run, packed_run, layer_run):
        first = next(iter(run()))
        page = Page(answers=False).run([first, *list(run(end="stopped"))[-1:]])
        assert not any(words in page.text() for words in stale), run
        assert "Nothing was" in page.text()
    _, *events = map_run(end="stopped")
    page = Page().run([started(task="map", bits=3), *events])
    assert "most sensitive layers with" not in page.text()


def test_lines_are_told_apart_without_their_colours() -> None:
    page = Page().run(list(layer_run()))
    section = page.views.section("ErrorsSection")
    assert isinstance(section, ErrorsSection)
    labels = [label for label, *_ in section._legend.state["legend"]]
    assert [label[0] for label in labels] == list(SIGNS[: len(labels)])
    assert len(set(MARKERS)) == len(SIGNS) == len(MARKERS)


def test_scales_that_nobody_counted_are_not_said_to_be_none() -> None:
    """Of NF4 and of number formats the events tell no number of groups: "0 scales" would be wrong."""
    counted, _ = histogram("16")
    assert notes_of(counted, marked=False)[0].startswith(f"Groups of 16: {counted.groups:,} scales for ")
    setting = replace(counted.setting, method="nf4", label="NF4", share="")
    said = notes_of(replace(counted, groups=0, setting=setting), marked=False)[0]
    assert said == f"{counted.rows * counted.columns:,} weights."


def test_levels_are_told_as_shares_of_the_weights_counted() -> None:
    levels = next(event for event in layer_run() if isinstance(event, LevelsShown))
    busiest = max(levels.used) / sum(levels.used)
    assert 0 < busiest < 1
    assert f"The busiest takes {percent(busiest)} of the weights" in levels_words(levels).replace("\u00a0", " ")
    state = QuantizationState()
    state.fold(levels)
    shares = [row[-1] for row in levels_table(state).rows]
    assert sum(shares) == pytest.approx(1.0, abs=1e-3)
