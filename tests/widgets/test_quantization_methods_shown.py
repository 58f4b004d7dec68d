"""What methods show of themselves on the `quantization` page: GPTQ's replay, AWQ's search, outliers, activations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pages import drawn, quiet_desk
from quantization_methods_sim import (
    REFUSED,
    activations_run,
    awq_run,
    gptq_run,
    int8_run,
    outlier,
    ranges,
    replay,
    search,
)
from quantization_whole import started
from test_quantization_whole import folded
from words_sim import HOSTILE

from lab.events import ArrayData
from widgets.choice import Choice
from widgets.quantization.activations_plot import inner_range
from widgets.quantization.activations_section import ActivationsSection, activation_verdict
from widgets.quantization.outliers_plot import OutliersPlot, beyond_threshold
from widgets.quantization.outliers_section import OutliersSection, maxima, outlier_verdict
from widgets.quantization.replay_frames import Frames, told
from widgets.quantization.replay_section import ReplaySection
from widgets.quantization.scale_search_section import ScaleSearchSection, gain, nearest_loss, search_verdict


def stepped(frames: Frames) -> list[Any]:
    """The weights after each step, by going forward: W <- W - error[:, k] spread[k]."""
    now = frames.original.copy()
    found = []
    for k in range(frames.steps):
        now = now - np.outer(frames.error[:, k], np.triu(frames.spread, 1)[k])
        shown = now.copy()
        shown[:, : k + 1] = frames.values[:, : k + 1]
        found.append(shown)
    return found


def test_every_frame_of_the_replay_is_that_of_the_steps_themselves() -> None:
    frames = Frames(replay(rows=5, steps=20))
    forward = stepped(frames)
    for step in range(frames.steps):
        frame = frames.at(step)
        np.testing.assert_allclose(frame.now, forward[step], atol=2e-6)
        np.testing.assert_allclose(frame.moved, forward[step] - frames.original, atol=2e-6)
        assert (frame.pushed[:, : step + 1] == 0).all()
    np.testing.assert_array_equal(frames.at(frames.steps - 1).now, frames.values)
    bad = replay(rows=5, steps=20)
    wrong = Frames(replace(bad, spread=ArrayData.of(bad.spread.numpy() * 1.2, "float32")))
    assert np.abs(wrong.at(3).now - forward[3]).max() > 1e-4  # the mutation is seen


def test_a_part_of_the_columns_can_be_shown() -> None:
    whole = replay(rows=4, steps=24)

    def part(array: ArrayData, columns: slice) -> ArrayData:
        return ArrayData.of(array.numpy()[..., columns], "float32")

    cut = slice(8, 16)
    names = ("original", "at_turn", "values", "error", "passed_on", "loss")
    some = replace(
        whole,
        columns=whole.columns[cut],
        start=8,
        spread=ArrayData.of(whole.spread.numpy()[cut, cut], "float32"),
        codes=ArrayData.of(whole.codes.numpy()[:, cut], "int32"),
        **{name: part(getattr(whole, name), cut) for name in names},
    )
    np.testing.assert_allclose(Frames(some).at(2).now, Frames(whole).at(10).now[:, cut], atol=2e-6)
    assert not Frames(some).whole
    assert told(Frames(some), Frames(some).at(2), 0)[0].startswith("Step 11:")


def test_the_scrubber_moves_the_replay() -> None:
    state = folded(gptq_run())
    section = drawn(ReplaySection, state)
    assert section._player.state["available"] == 48
    section._player._handle_custom_msg({"type": "step", "step": 30}, [])
    section.render(state, -1, live=False)
    assert section._player.state["step"] == 30
    assert section._told.state["lines"][0][1].startswith("Step 31:")
    data = section._line.state["data"]
    assert (len(data["done"]["x"]), len(data["waiting"]["x"])) == (31, 17)
    assert section._map.state["data"]["turn"]["x"] == [31]
    section._player._handle_custom_msg({"type": "play", "playing": True}, [])
    section.render(state, -1, live=False)
    assert section._player.state["playing"] is True
    assert section.link()["column"] == 31
    other = ReplaySection(quiet_desk())
    other.restore({"column": 31, "row_drawn": 2})
    other.render(state, -1, live=False)
    assert other._player.state["step"] == 30
    for bad in (0, -3, "x", True, None):
        other.restore({"column": bad, "row_drawn": bad if bad != 0 else -1})
    assert other.step == 30
    other.restore({"column": 9999, "row_drawn": 99})
    other.render(state, -1, live=False)
    assert other._player.state["step"] == 47


def test_the_replay_in_words_and_in_its_table_is_the_arrays() -> None:
    state = folded(gptq_run())
    section = drawn(ReplaySection, state)
    frames = Frames(state.replays[0])
    (table,) = section.tables(state)
    assert len(table.rows) == frames.steps
    assert [r[1] for r in table.rows] == list(state.replays[0].columns)
    for step, row in enumerate(table.rows):
        assert row[3] == pytest.approx(frames.at_turn[0, step], rel=1e-4)
        assert row[3] - row[5] == pytest.approx(row[6], abs=1e-6)  # the error is what rounding took
    assert table.rows[-1][8] == pytest.approx(frames.loss[-1], rel=1e-4)
    assert f"{frames.final / frames.nearest:.2f}" in section._told.state["lines"][-1][1]


def test_a_replay_whose_arrays_do_not_fit_is_said_and_not_drawn() -> None:
    broken = replace(replay(), spread=ArrayData.of(np.zeros((3, 3)), "float32"))
    state = folded([started(method="gptq"), broken])
    section = drawn(ReplaySection, state)
    assert "cannot be drawn" in section._told.state["lines"][0][1]
    assert section.tables(state) == ()
    with pytest.raises(ValueError, match="other shapes"):
        Frames(broken)


# AWQ


def test_the_search_is_drawn_relative_to_rounding() -> None:
    state = folded(awq_run())
    section = drawn(ScaleSearchSection, state)
    told_ = state.scale_searches[0]
    curve = section._curve.state["data"]["curve"]
    assert curve["y"][0] == 1.0
    assert curve["x"] == list(told_.ratios)
    assert section._curve.state["data"]["taken"]["x"] == [0.45]
    assert gain(told_) == pytest.approx(min(told_.losses) / told_.losses[0])
    assert section._channels.state["rows"][0]["label"] == "channel 3"
    assert "folded into input_layernorm" in section._verdict.state["notes"][0]


def test_what_cannot_be_folded_says_why() -> None:
    state = folded(awq_run())
    section = drawn(ScaleSearchSection, state)
    section._choice.widget._handle_custom_msg({"type": "values", "changed": {"which": "1"}, "invalid": []}, [])
    section.render(state, -1, live=False)
    assert section._verdict.state["notes"][0] == f"Not folded: {REFUSED}"
    assert section.link() == {"awq": 1}


def test_searches_without_a_gain_or_without_any_try_are_told_as_such() -> None:
    flat = replace(search(), losses=(2e-3,) * 20, best=0.0)
    assert search_verdict(flat)[:2] == ("even", "No scaling helps here: r = 0 is best")
    none = replace(search(), ratios=(), losses=(), protected=())
    assert search_verdict(none)[1] == "Nothing was searched here"
    exact = replace(search(), losses=(0.0,) * 20)
    assert search_verdict(exact)[1] == "Nothing was left to gain"
    odd = replace(search(), losses=(*search().losses[:3], *([math.nan] * 17)))
    state = folded([started(method="awq"), odd, none])
    section = drawn(ScaleSearchSection, state)
    assert len(section._curve.state["data"]["curve"]["x"]) == 3
    assert math.isnan(nearest_loss(none))
    assert len(section.tables(state)[0].rows) == 20


# outliers


def test_the_threshold_slider_recounts_channels_and_says_what_it_cannot() -> None:
    state = folded(int8_run())
    section = drawn(OutliersSection, state)
    own = state.outliers[0]
    assert section._parts.state["rows"][1]["cells"][0] == f"{own.count}"
    section._slider.widget._handle_custom_msg({"type": "values", "changed": {"threshold": 3.0}, "invalid": []}, [])
    section.render(state, -1, live=False)
    count = sum(v >= 3.0 for v in maxima(own))
    assert count > own.count
    assert section._parts.state["rows"][1]["cells"][0] == f"{count}"
    assert "run" in section._legend.state["lines"][0][1]
    assert section._errors.state["rows"][0]["cells"] == ["1.2\u00a0%", "1.1\u00a0%"]  # those of the run stay
    assert section.link() == {"outlier_at": 3.0}
    section.reset()
    assert section.threshold is None


def test_the_rule_is_reaches_and_nothing_is_apart_at_threshold_0() -> None:
    assert beyond_threshold([7.0, 6.0, 5.99], 6.0) == 2
    assert beyond_threshold([7.0, 6.0], 0.0) == 0
    plot = OutliersPlot()
    plot.show([0.0, -1.0], [], 0.0)  # nothing to draw on a logarithmic axis
    low = plot.state["props"]["y_range"]["start"]
    assert 0 < low < plot.state["props"]["y_range"]["end"]


def test_planted_outliers_stand_beside_the_model_s_own_with_an_honest_note() -> None:
    state = folded(int8_run())
    section = drawn(OutliersSection, state)
    text, note = section._verdict.state["text"], section._verdict.state["notes"][0]
    assert "43 of 576" in text
    assert "23.3 times smaller" in note
    assert "135M" in section._honest.state["lines"][0][1]
    assert len(section._plot.state["data"]["planted"]["x"]) == 576
    tame = outlier_verdict(outlier(), replace(outlier(100.0), count=0))
    assert "Not even the planted channels" in tame[2]
    assert "Threshold 0" in outlier_verdict(outlier(threshold=0.0), None)[1]


def test_hostile_words_of_an_event_stay_words() -> None:
    section = drawn(OutliersSection, folded(int8_run(words=HOSTILE)))
    assert section._honest.state["lines"][0] == ["p", HOSTILE]


# activations


def test_each_way_to_quantize_inputs_stands_beside_weights_alone() -> None:
    state = folded(activations_run())
    section = drawn(ActivationsSection, state)
    rows = section._bars.state["rows"]
    assert [r["label"] for r in rows] == [c.mode for c in state.activations[0].choices]
    assert section._bars.state["line"] == [0.104, "weights alone"]
    assert rows[-1]["cells"][1] == "–"  # not measured with weights
    assert section._verdict.state["tone"] == "good"
    assert "dynamic, per token" in section._verdict.state["text"]


def test_ranges_of_all_layers_are_drawn_and_one_is_looked_at() -> None:
    state = folded(activations_run())
    section = drawn(ActivationsSection, state)
    whole = section._ranges.state["data"]["whole"]
    assert whole["low"] == [a.low for a in state.activations]
    assert inner_range(state.activations[0]) == (
        state.activations[0].percentiles[0][1],
        state.activations[0].percentiles[-1][1],
    )
    assert inner_range(replace(ranges(0), percentiles=())) == (ranges(0).low, ranges(0).high)
    section._choice.index = 2
    section.render(state, -1, live=False)
    assert "position 0" in section._tokens.state["label"]
    assert len(section._tokens.state["data"]["bars"]["x"]) == 256
    choices, spans = section.tables(state)
    assert len(choices.rows) == 15
    assert any("99.9 % stay below" in str(r[1]) for r in spans.rows)


def test_inputs_that_lose_more_than_the_weights_are_said_to() -> None:
    worse = replace(ranges(0), weights_only_error=0.001)
    assert activation_verdict(worse)[0] == "bad"
    assert activation_verdict(replace(ranges(0), choices=()))[0] == "none"
    assert activation_verdict(replace(ranges(0), weights_only_error=math.nan))[0] == "none"


@pytest.mark.parametrize("kind", [ReplaySection, ScaleSearchSection, OutliersSection, ActivationsSection])
def test_a_section_without_its_event_is_not_on_the_page(kind: Any) -> None:
    state = folded([started()])
    made = drawn(kind, state)
    assert not made.present(state)
    assert all(not table.rows for table in made.tables(state))


def test_a_choice_stays_within_what_there_is() -> None:
    choice = Choice(quiet_desk(), "Matrix")
    choice.index = 7
    assert choice.show(["a", "b"]) == 1
    assert choice.widget.state["values"] == {"which": "1"}
    assert choice.show(["a"]) == 0
    assert choice.widget.layout.display == "none"
