"""The `quantization` page's map and Pareto plot without a browser, against the events they draw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from pages import drawn, fold_all, quiet_desk
from quantization_whole import LLAMA, coverage, divergence, map_run, pareto_run, setting, started
from words_sim import HOSTILE

from lab.events import Event, RunFinished
from lab.events.quantization import MapCell, MapCells, ParetoPoint
from widgets.format import typeset_number, typeset_share
from widgets.layer_map import FAINT, FULL, shade
from widgets.quantization.map_plot import MapPlot
from widgets.quantization.map_section import MapSection, MixedSection, SensitivitySection, map_verdict, suggestion
from widgets.quantization.method_marks import MARKS, mark_of
from widgets.quantization.pareto_plot import FLOOR, ParetoPlot, better_than, frontier, kl, measured
from widgets.quantization.pareto_section import ParetoSection, pareto_table, pareto_verdict
from widgets.quantization.state import Matrix, QuantizationState


def folded(events: Iterable[Event]) -> QuantizationState:
    return fold_all(QuantizationState, events)


def test_every_cell_of_the_map_is_drawn_where_it_belongs() -> None:
    state = folded(map_run())
    cells = drawn(MapSection, state)._plot.state["data"]["cells"]
    assert len(cells["x"]) == 30 * 7
    told = state.cells()
    worst = max(told.values(), key=lambda c: c.weight_error)
    most = max(range(len(cells["x"])), key=lambda i: cells["alpha"][i])
    assert (cells["x"][most], cells["name"][most]) == (worst.layer, worst.projection)
    assert cells["alpha"][most] == FULL
    for x, y, name in zip(cells["x"], cells["y"], cells["name"], strict=True):
        assert LLAMA[y] == name
        assert 0 <= x < 30


def test_more_error_is_a_fuller_colour() -> None:
    shades = [shade(e, 0.1, 0.4) for e in (0.1, 0.2, 0.3, 0.4)]
    assert shades == sorted(shades)
    assert shades[0] == FAINT
    assert shades[-1] == FULL
    assert shade(0.2, 0.2, 0.2) == FULL  # a single value is no division by nothing


def test_the_scrubber_shows_the_map_as_it_was() -> None:
    state = folded(map_run())
    half = drawn(MapSection, state, upto=9)
    assert len(half._plot.state["data"]["cells"]["x"]) == 10 * 7
    assert "70 of 210" in half._verdict.state["notes"][0]
    assert drawn(SensitivitySection, state, upto=9)._plot.state["data"]["bars"]["x"] == []
    assert drawn(SensitivitySection, state, upto=32)._plot.state["data"]["bars"]["x"] == [0, 1, 2]


def test_colouring_by_another_error_reorders_the_map_and_is_in_the_link() -> None:
    state = folded(map_run())
    section = drawn(MapSection, state)
    before = section._plot.state["data"]["cells"]["alpha"]
    section._controls._handle_custom_msg({"type": "values", "changed": {"measure": "output"}, "invalid": []}, [])
    section.render(state, state.steps - 1, live=False)
    assert section._plot.state["data"]["cells"]["alpha"] != before
    assert section.link() == {"map_colour": "output"}
    other = MapSection(quiet_desk())
    other.restore({"map_colour": "output"})
    assert other.measure == "output"
    for bad in ("rubbish", 3, None, ["weight"]):
        other.restore({"map_colour": bad})
    assert other.measure == "output"


def test_what_was_not_measured_is_an_empty_place_and_not_a_zero() -> None:
    cells = {Matrix(0, name): MapCell(0, name, 3, 0.1, float("nan"), 0.01, 3.25, 100) for name in LLAMA}
    plot = MapPlot()
    plot.show(cells, 2, "output", [])
    assert plot.state["data"]["cells"]["x"] == []
    assert len(plot.state["data"]["none"]["x"]) == 7 + 1  # the last is the key above the map
    assert "not measured" in plot.state["data"]["names"]["text"]
    assert "nothing measured" in plot.state["label"]


def test_an_unknown_projection_is_in_the_table_and_not_in_the_picture() -> None:
    odd = MapCell(1, HOSTILE, 3, 0.1, 0.1, 0.01, 3.25, 100)
    state = folded([started(task="map"), MapCells(setting=setting(), cells=(odd,))])
    section = drawn(MapSection, state)
    assert section._plot.state["data"]["cells"]["x"] == []
    assert section._table.state["rows"][0][1] == HOSTILE
    formatter = str(section._plot.item)
    assert HOSTILE not in formatter  # names of the axis are code, and fixed


def test_the_whole_beside_the_layers_and_what_to_write_next() -> None:
    state = folded(map_run())
    section = drawn(SensitivitySection, state)
    worst = max(state.sensitivities(), key=lambda s: s.divergence.kl)
    assert f"layer {worst.layer}" in section._plot.state["label"]
    assert len(section._table.state["rows"]) == 30
    assert "add up" in section._caption.state["lines"][0][1]
    said = suggestion(state)
    assert f"{worst.layer}:5" in said
    assert ":2" in said
    assert "takes layers" in suggestion(folded(map_run(tried=2)))


def test_mixed_precision_shows_bits_and_dense_layers_with_the_total() -> None:
    bits = [8.0, 8.0, *([3.0] * 27), 0.0]
    state = folded([started(task="map", layer_bits="0-1:8, 29:16"), coverage(setting(bits=3), bits)])
    section = drawn(MixedSection, state)
    data = section._plot.state["data"]
    assert data["bars"]["top"] == bits[:-1]
    assert data["dense"]["x"] == [29]
    assert data["names"]["text"] == ["8", "3", "dense"]
    size = section._figures.state["figures"][0]
    assert size["badge"] == "DERIVED"
    assert "513 MiB" in size["note"]
    assert section._table.state["rows"][29][1] == "dense"
    assert not MixedSection(quiet_desk()).present(folded([started(task="map")]))


def test_a_map_in_every_condition_says_where_it_is() -> None:
    assert map_verdict([], 210, live=True, end=None)[0] == "pending"
    assert map_verdict([], 210, live=False, end=RunFinished())[1] == "No matrix was measured."
    exact = [MapCell(0, "q_proj", 4, 0.0, 0.0, 0.0, 5.0, 10)]
    assert map_verdict(exact, 1, live=False, end=RunFinished())[1] == "Quantizing changes nothing"
    state = folded(islice(map_run(), 20))
    section = drawn(MapSection, state, live=True)
    assert section._verdict.state["tone"] == "pending"
    assert "so far" in section._verdict.state["notes"][0]
    assert len(section._plot.state["data"]["empty"]["x"]) == 210 - len(state.cells())
    assert not SensitivitySection(quiet_desk()).present(state)


# Pareto


def point(
    bits: float, loss: float | None, *, method: str = "nearest", chosen: bool = False, why: str = ""
) -> ParetoPoint:
    return ParetoPoint(
        index=0,
        total=4,
        setting=setting(method, int(bits), label=f"{method} {bits}"),
        bits_per_weight=bits,
        model_bytes=1_000_000,
        divergence=None if loss is None else divergence(loss),
        skipped=why,
        chosen=chosen,
        ms=1.0,
    )


def test_the_frontier_is_what_no_other_beats() -> None:
    a, b, c, d = point(3, 1.0), point(4, 0.5), point(4.5, 0.7), point(5, 0.1)
    assert frontier([d, c, b, a]) == [a, b, d]
    assert better_than(c, [a, b, c, d]) is b
    assert better_than(d, [a, b, c, d]) is None
    same_bits = point(4, 0.6)
    assert frontier([same_bits, b]) == [b]
    worse = replace(c, bits_per_weight=3.9)  # now fewer bits than b
    assert frontier([a, b, worse, d]) == [a, worse, b, d]


def test_frontier_by_brute_force() -> None:
    points = measured(folded(pareto_run()).pareto)
    kept = frontier(points)
    for p in points:
        beaten = any(q.bits_per_weight <= p.bits_per_weight and kl(q) < kl(p) for q in points)
        assert beaten == (p not in kept), p.setting.label


def test_points_carry_the_symbol_and_colour_of_their_method() -> None:
    state = folded(pareto_run())
    section = drawn(ParetoSection, state)
    data = section._plot.state["data"]
    for mark in MARKS:
        wanted = [p for p in measured(state.pareto) if mark_of(p.setting.method) is mark]
        assert data[mark.name]["x"] == [p.bits_per_weight for p in wanted]
        assert section._plot.state["props"][f"item_{mark.name}"]["visible"] is bool(wanted)
    assert len({m.marker for m in MARKS}) == len({m.colour for m in MARKS}) == len(MARKS)
    assert len(data["chosen"]["x"]) == 1


def test_skipped_settings_are_named_with_their_reason_and_never_drawn() -> None:
    state = folded(pareto_run())
    (skipped,) = [p for p in state.pareto if p.skipped]
    section = drawn(ParetoSection, state)
    assert skipped.setting.label in section._skipped.state["lines"][0][1]
    assert "576" in section._skipped.state["lines"][0][1]
    drawn_points = sum(len(section._plot.state["data"][m.name]["x"]) for m in MARKS)
    assert drawn_points == len(state.pareto) - 1
    row = next(r for r in section._table.state["rows"] if r[-1])
    assert row[3] is None


@pytest.mark.parametrize(
    ("points", "tone", "words"),
    [
        ([point(4, 0.5, chosen=True), point(4, 0.1, method="gptq")], "even", "gptq 4 loses less than nearest 4"),
        ([point(4, 0.1, chosen=True), point(4, 0.5, method="gptq")], "good", "Nothing beats nearest 4"),
        ([point(4, 0.1)], "none", "Least lost"),
        ([point(4, None, why="does not fit")], "pending", "No setting was measured"),
        ([], "pending", "No setting was measured"),
    ],
)
def test_the_verdict_on_the_chosen_setting(points: list[ParetoPoint], tone: str, words: str) -> None:
    whole = [replace(p, total=len(points)) for p in points]
    found = pareto_verdict(whole, live=False, ended=True)
    assert found[0] == tone
    assert words in found[1]


def test_a_stopped_comparison_says_after_how_many() -> None:
    state = folded(pareto_run(upto=6, end="stopped"))
    section = drawn(ParetoSection, state)
    assert "Stopped after 6 of 26" in section._verdict.state["notes"][-1]
    live = folded(list(pareto_run(upto=6))[:-1])
    assert drawn(ParetoSection, live, live=True)._verdict.state["tone"] == "pending"


def test_no_loss_at_all_lies_on_the_edge_of_the_logarithmic_axis() -> None:
    plot = ParetoPlot()
    plot.show([point(4, 0.0), point(5, -1e-12), point(3, 0.5)])
    assert sorted(plot.state["data"]["nearest"]["y"]) == [FLOOR, FLOOR, 0.5]
    low = plot.state["props"]["y_range"]["start"]
    assert 0 < low < FLOOR


def test_hostile_labels_are_data_and_tables_say_what_the_plot_says() -> None:
    state = folded(pareto_run(label=HOSTILE))
    section = drawn(ParetoSection, state)
    assert HOSTILE in section._plot.state["data"]["nf4"]["label"]
    table = pareto_table(state.pareto)
    assert len(table.rows) == len(state.pareto)
    bits = sorted(p.bits_per_weight for p in measured(state.pareto))
    assert [r[2] for r in table.rows if not r[-1]] == pytest.approx(bits, rel=1e-4)
    on_edge = [r[0] for r in table.rows if r[12] == "yes"]
    assert on_edge == [p.setting.label for p in frontier(measured(state.pareto))]


def test_numbers_in_sentences_do_not_break_and_have_a_minus() -> None:
    assert typeset_share(0.15) == "15\u00a0%"
    assert typeset_number(-0.25) == "\u22120.250"


@pytest.mark.parametrize("kind", [MapSection, ParetoSection])
def test_before_the_first_event_there_are_words_and_no_error(kind: Any) -> None:
    for events in ([], [started(task="map")]):
        for live in (True, False):
            made = drawn(kind, folded(events), live=live)
            assert made._verdict.state["text"]
            assert made._plot.state["label"]
