"""Two runs set against each other: figures that are right, differences that are true, and what cannot be compared."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import CARD, FINISHED, card, kv_run
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import BadInput
from lab.events import Recording, RunCancelled, RunFailed, RunStarted
from lab.experiments.registry import EXPERIMENTS
from widgets.comparison.cards import MOST, differences
from widgets.comparison.core import compare, run_of
from widgets.comparison.data import Comparison, FigurePair
from widgets.comparison.told import NUMBER, SHARE, SIZE, Line, Told, collect, figure
from widgets.opening import RECORDINGS

FAST = kv_run((1.0, 10.0, 12.0, 14.0), without=(0.0, 30.0, 36.0, 42.0))
SLOW = kv_run((1.0, 20.0, 24.0, 28.0, 40.0), run_id="b", of=card(max_new_tokens=5, do_sample=True))


def compared(a: Any, b: Any) -> Comparison:
    return compare(run_of(a), run_of(b))


def by_id(found: Comparison) -> dict[str, FigurePair]:
    return {f.id: f for f in found.figures}


def test_the_figures_are_those_of_the_runs() -> None:
    found = by_id(compared(FAST, SLOW))
    decode = found["decode"]
    assert (decode.a, decode.b, decode.against) == (12.0, 28.0, 28.0 / 12.0)
    assert (decode.a_text, decode.b_text, decode.against_text) == ("12.0 ms", "28.0 ms", "2.3 ×")
    assert (found["tokens"].against, found["tokens"].against_text) == (1.0, "+1")
    assert (found["bytes"].a, found["bytes"].b) == (500.0, 600.0)
    assert (found["prefill"].against, found["prefill"].against_text) == (1.0, "the same")
    assert (found["faster"].a, found["faster"].b, found["faster"].against_text) == (3.0, None, "–")
    assert {found[name].a_badge for name in ("decode", "bytes")} == {"MEASURED"}
    assert found["per_token"].b_badge == "DERIVED"


def test_a_figure_that_is_wrong_is_seen() -> None:
    slower = kv_run((1.0, 20.0, 24.0, 28.5, 40.0), run_id="b", of=card(max_new_tokens=5, do_sample=True))
    assert by_id(compared(FAST, slower))["decode"].against != by_id(compared(FAST, SLOW))["decode"].against


def test_lines_stand_on_the_same_axes() -> None:
    found = {p.id: p for p in compared(FAST, SLOW).plots}
    assert found["with"].a == ((3, 10.0), (4, 12.0), (5, 14.0))
    assert found["with"].b == ((3, 20.0), (4, 24.0), (5, 28.0), (6, 40.0))
    assert (found["with"].x, found["bytes"].x) == ("text length, tokens", "cache length, tokens")
    longer = kv_run((1.0, 10.0, 12.0), run_id="b", without=(0.0, 30.0, 36.0))
    (without,) = (p for p in compared(FAST, longer).plots if p.id == "without")
    assert without.x == "text length, tokens"
    assert "without" not in found


def test_what_only_one_has_is_named() -> None:
    assert compared(FAST, SLOW).cannot == ("Only A has: a new token without the cache.",)
    assert compared(SLOW, FAST).cannot == ("Only B has: a new token without the cache.",)


def test_only_what_differs_in_the_cards_is_a_difference() -> None:
    found = differences(CARD, card(seed=3, dtype="bfloat16", threads=1, versions={"torch": "2.12.0"}))
    assert [(d.name, d.title, d.a, d.b) for d in found] == [
        ("seed", "Seed", "0", "3"),
        ("dtype", "Number format", "float32", "bfloat16"),
        ("threads", "Threads", "2", "1"),
    ]
    assert differences(CARD, CARD) == ()
    assert [d.name for d in differences(CARD, card(weight_hash="1" * 64))] == ["weight_hash"]
    other = differences(CARD, card(model="other", weight_hash="1" * 64))
    assert [d.name for d in other] == ["model"], "other models have other weights"
    (words,) = differences(CARD, card(do_sample=True))
    assert (words.title, words.a, words.b) == ("Sampling", "greedy", "sample")


def test_one_and_true_are_two_values_and_what_a_card_lacks_is_a_dash() -> None:
    assert [d.name for d in differences(card(x=1), card(x=True))] == ["x"]
    (gone,) = differences(card(newer=5), CARD)
    assert (gone.a, gone.b) == ("5", "–")


def test_layers_are_words() -> None:
    (found,) = differences(card(layers=[0]), card(layers=[0, 14]))
    assert (found.a, found.b) == ("layer 0", "layers 0, 14")
    (found,) = differences(card(trace_layers=[]), card(trace_layers=[3]))
    assert (found.title, found.a, found.b) == ("Attention of layers", "(none)", "layer 3")
    (found,) = differences(card(ends=[1]), card(ends=[1, "x"]))
    assert (found.a, found.b) == ("1", "1, x")


def test_long_texts_are_shown_where_they_differ() -> None:
    (found,) = differences(card(prompt="same " * 200 + "one"), card(prompt="same " * 200 + "two"))
    assert found.a.endswith("one")
    assert found.b.endswith("two")
    assert max(len(found.a), len(found.b)) <= MOST + 2


def test_versions_are_a_note() -> None:
    other = kv_run(run_id="b", of=card(versions={"torch": "2.12.0"}))
    assert any("torch 2.13.0 and 2.12.0" in note for note in compared(FAST, other).notes)
    assert not any("versions" in note for note in compared(FAST, SLOW).notes)


def test_a_ratio_of_times_says_under_load() -> None:
    loaded = kv_run(run_id="b", end=replace(FINISHED, ran_beside=2))
    found = by_id(compared(FAST, loaded))
    assert found["decode"].note == "under load: B ran beside 2 other runs"
    assert found["bytes"].note == ""
    assert by_id(compared(FAST, SLOW))["decode"].note == ""
    assert next(p for p in compared(FAST, loaded).plots if p.id == "with").note.startswith("under load")


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (None, "B still runs"),
        (RunCancelled(reason="stopped"), "B did not come to its end (stopped)"),
        (
            RunFailed(code="memory", message="too little memory"),
            "B did not come to its end (failed: too little memory)",
        ),
    ],
)
def test_a_run_without_a_good_end_is_compared_as_far_as_it_came(end: Any, words: str) -> None:
    found = compared(FAST, kv_run((1.0, 20.0, 20.0), run_id="b", end=end))
    assert any(note.startswith(words) for note in found.notes)
    assert by_id(found)["decode"].b == 20.0
    assert by_id(found)["decode"].note == "what ran beside B is not known"


def test_a_run_that_measured_nothing_says_so() -> None:
    begun = [FAST[0], RunFailed(code="error", message="no")]
    found = compared(begun, SLOW)
    assert found.cannot == ("A ended before it had measured anything.",)
    assert found.plots == ()


def test_texts_meet_token_by_token() -> None:
    (same,) = compared(FAST, kv_run(run_id="b")).texts
    assert same.first is None
    (longer,) = compared(FAST, SLOW).texts
    assert (longer.first, longer.said) == (4, "the same as far as A goes (4 of 5 tokens)")
    (shorter,) = compared(SLOW, FAST).texts
    assert (shorter.first, shorter.said) == (4, "the same as far as B goes (4 of 5 tokens)")
    assert same.said == "the same 4 tokens in both"
    other = kv_run(run_id="b", tokens=((5, " a"), (9, " b")))
    assert compared(FAST, other).texts[0].first == 1, "another token of the same text"
    assert compared(FAST, other).texts[0].said == "they differ from token 2 on"
    assert compared(FAST, other).as_json()["texts"][0]["said"] == "they differ from token 2 on"
    alike = kv_run(run_id="b", of=card(weight_hash="1" * 64), tokens=((5, " a"), (9, " b"), (5, " c"), (5, " d")))
    assert compared(FAST, alike).texts[0].first is None, "ids of two models mean nothing to one another"


def test_other_experiments_and_no_run_are_refused_in_words() -> None:
    other = [replace(FAST[0], card=replace(CARD, experiment="beam_search")), FINISHED]  # type: ignore[arg-type, type-var]
    with pytest.raises(BadInput, match=r"A is a run of kv_cache, B one of beam_search"):
        compared(FAST, other)
    with pytest.raises(BadInput, match="begins with run_started"):
        run_of(FAST[1:])


def test_other_tasks_say_what_cannot_be_compared() -> None:
    a = Recording.load(RECORDINGS / "quantization.safetensors")
    words = replace(
        a.started, run_id="b", card=replace(a.started.card, params={**a.started.card.params, "task": "words"})
    )
    found = compared(a.events, [words, FINISHED])
    assert "A is of the task “study one layer”, B of “compare words”." in found.cannot[0]
    assert "Nothing that one measured was measured by both." in found.cannot[0]
    assert (found.figures, found.plots, found.texts) == ((), (), ())


def test_figures_of_two_scales_are_shown_and_not_set_against_each_other() -> None:
    def told(basis: str) -> Told:
        line = Line("l", "A line", "x", "y", ((1, 1.0), (2, 2.0)), basis=basis)
        return collect([figure("s", "score", 2.0, NUMBER, basis=basis)], [line])

    run = run_of(FAST)
    found = compare(replace(run, told=told("penalty 1")), replace(run, told=told("penalty 2")))
    assert (found.figures[0].a, found.figures[0].against, found.figures[0].against_text) == (2.0, None, "–")
    assert found.figures[0].note == "not comparable: A penalty 1, B penalty 2"
    assert found.plots == ()
    assert found.cannot == ("No picture of “a line”: A penalty 1, B penalty 2.",)


def test_what_no_float_holds_is_not_there() -> None:
    def told(value: float) -> Told:
        line = Line("l", "A line", "x", "y", ((1.0, 1.0), (2.0, 2.0), (math.inf, 3.0), (3.0, math.nan)))
        return collect([figure("n", "a number", value, NUMBER)], [line])

    run = run_of(FAST)
    found = compare(replace(run, told=told(-1e308)), replace(run, told=told(1e308)))
    assert (found.figures[0].against, found.figures[0].against_text) == (None, "–")
    assert found.plots[0].a == ((1.0, 1.0), (2.0, 2.0))
    json.dumps(found.as_json(), allow_nan=False)


finite = st.floats(-1e6, 1e6, allow_nan=False)
positive = st.floats(1e-3, 1e6)
points = st.lists(st.tuples(st.integers(0, 50), finite), max_size=5, unique_by=lambda p: p[0]).map(tuple)
SCALES = (NUMBER, SHARE, SIZE)


@st.composite
def tolds(draw: st.DrawFn) -> Told:
    quantities = []
    for i, measure in enumerate(SCALES):
        if draw(st.booleans()):
            quantities.append(figure(str(i), f"figure {i}", draw(positive if measure is SIZE else finite), measure))
    lines = [Line(str(i), f"line {i}", "x", "y", draw(points)) for i in range(draw(st.integers(0, 2)))]
    return collect(quantities, lines, task=draw(st.sampled_from(["one", "two"])))


@given(tolds())
@settings(deadline=None)
def test_a_run_and_itself_do_not_differ(told: Told) -> None:
    run = replace(run_of(FAST), told=told)
    found = compare(run, run)
    assert found.differences == ()
    assert {f.against_text for f in found.figures} <= {"the same"}
    assert all(p.a == p.b for p in found.plots)
    assert not any("Only" in text for text in found.cannot)


@given(tolds(), tolds())
@settings(deadline=None)
def test_b_against_a_mirrors_a_against_b(first: Told, second: Told) -> None:
    a, b = replace(run_of(FAST), told=first), replace(run_of(SLOW), told=second)
    there, back = compare(a, b), compare(b, a)
    assert [(d.name, d.b, d.a) for d in back.differences] == [(d.name, d.a, d.b) for d in there.differences]
    assert [(p.id, p.b, p.a) for p in back.plots] == [(p.id, p.a, p.b) for p in there.plots]
    assert [(f.id, f.b, f.a, f.b_text, f.a_text) for f in back.figures] == [
        (f.id, f.a, f.b, f.a_text, f.b_text) for f in there.figures
    ]
    for one, other in zip(there.figures, back.figures, strict=True):
        if one.against is None or other.against is None:
            assert one.against is other.against
        elif one.ratio:
            assert one.against * other.against == pytest.approx(1.0)
        else:
            assert one.against == -other.against


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_experiment_tells_its_packaged_run(name: str) -> None:
    events = Recording.load(RECORDINGS / f"{name}.safetensors").events
    run = run_of(events)
    assert len(run.told.figures) >= 5
    assert run.told.lines
    found = compare(run, run)
    assert found.differences == ()
    assert {f.against_text for f in found.figures} == {"the same"}
    assert len({f.id for f in found.figures}) == len(found.figures)
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["experiment"] == name
    started = run.started
    assert isinstance(started, RunStarted)
    for cut in (1, 2, len(events) // 3, len(events) // 2):  # a living run has told so much at some time
        assert compare(run, run_of(events[:cut])).experiment == name


def test_an_update_is_written_as_its_page_writes_it() -> None:
    run = run_of(Recording.load(RECORDINGS / "lora.safetensors").events)
    assert {line.id: line.y for line in run.told.lines}["update"] == "|ΔW| / |W|, mean"


def test_the_module_needs_no_widget() -> None:
    for path in ("core", "data", "told", "cards", "words", "variants", "training"):
        text = (Path(__file__).parents[2] / "widgets" / "comparison" / f"{path}.py").read_text()
        assert "ipywidgets" not in text
