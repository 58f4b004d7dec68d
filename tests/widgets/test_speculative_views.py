"""The `speculative` page without a browser: its words, its marks and its numbers against the events."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from speculative_sim import EXAMPLE, HOSTILE, WORDS, Toy, decode, drafts, each_task, sweep, trial
from test_speculative_words import folded

from lab.events import Event, Recording, RunCancelled, RunFinished
from lab.events.speculative import DraftRanked, SpeculativeFigures, SpeculativeRound
from widgets.experiment import Desk, build_views
from widgets.exporting import make_export
from widgets.speculative import poster
from widgets.speculative.figures import details, headline, spoken, tone, verdict
from widgets.speculative.race_plot import race_of
from widgets.speculative.state import SpeculativeState, Spot
from widgets.speculative.trial_section import trial_verdict
from widgets.speculative.views import SpeculativeViews
from widgets.token_text import quoted, visible


def desk() -> Desk:
    def ask(_name: str, _params: dict[str, Any], reply: Callable[..., None], *, of_run: bool) -> None:
        assert not of_run
        reply(EXAMPLE, "")

    return Desk(ask=ask, touch=lambda: None, lock=threading.RLock())


def views(events: list[Event], *, live: bool = False) -> SpeculativeViews:
    made = build_views("speculative", desk())
    assert isinstance(made, SpeculativeViews)
    for event in events:
        made.fold(event)
    made.settle()
    made.render(live=live)
    return made


def spot_of(state: SpeculativeState, kind: str) -> Spot:
    return next(Spot(r.index, i) for r in state.rounds for i, t in enumerate(r.tokens) if t.kind == kind)


def test_counts_are_the_figures_by_their_definitions() -> None:
    state = folded(decode(max_new_tokens=90))
    counts, figures = state.counts(state.steps - 1), state.figures
    assert isinstance(figures, SpeculativeFigures)
    assert (counts.drafted, counts.judged, counts.accepted) == (figures.drafted, figures.judged, figures.accepted)
    assert counts.by_depth == figures.by_depth
    assert counts.alpha[0] / counts.alpha[1] == pytest.approx(figures.alpha)
    assert state.emitted(state.steps - 1) == figures.new_tokens == 90
    half = {f["id"]: f for f in headline(state, 3)}
    some = state.counts(3)
    assert half["accept_judged"]["value"] == f"{some.accepted / some.judged:.2f}"
    state.rounds.pop()  # the count is of what is there
    assert state.counts(state.steps - 1).drafted < figures.drafted


def test_all_figures_have_a_badge_a_note_and_a_definition() -> None:
    shown = views(decode())
    rows = [*shown._trace._figures.state["figures"], *shown._pay._figures.state["figures"]]
    assert len(rows) == len({row["id"] for row in rows}) == 11
    for row in rows:
        assert row["value"], row["id"]
        assert row["badge"] in ("MEASURED", "DERIVED")
        assert row["title"], row["id"]
        assert row["note"], row["id"]
    assert {r["id"] for r in rows if r["badge"] == "DERIVED"} == {"expected", "predicted", "break_even"}


def test_slower_is_called_slower() -> None:
    state = folded(decode(Toy(one_hot=True, slow=1.6)))
    assert state.figures is not None
    measured = state.figures.measured
    assert measured is not None
    assert measured < 0.9
    assert verdict(state, live=False)[:2] == ("bad", f"Slower ({measured:.2f} times)" + _because(state))
    assert (tone(1.01), tone(1.3), tone(0.9), tone(None)) == ("even", "good", "bad", "none")
    state.end = replace(state.end, ran_beside=2) if isinstance(state.end, RunFinished) else None
    assert "2 other runs" in verdict(state, live=False)[2][0]


def _because(state: SpeculativeState) -> str:
    assert state.figures is not None
    return state.figures.verdict[state.figures.verdict.index(",") :]


def test_a_long_verdict_is_a_heading_and_a_note() -> None:
    words = (
        "slower, because checking 3.9 tokens costs 1.99 plain steps; it pays above α = 0.61. A round costs 2.16 steps."
    )
    assert spoken(words) == [
        "Slower, because checking 3.9 tokens costs 1.99 plain steps",
        "It pays above α = 0.61. A round costs 2.16 steps.",
    ]
    for written in ("1.14 ×", "1.14x"):  # as it is, and as earlier runs recorded it
        assert spoken(f"{written} faster: 1.21 tokens a pass.") == ["1.14 × faster: 1.21 tokens a pass."]


def test_no_draft_breaks_even_where_none_can() -> None:
    state = folded(decode())
    assert state.figures is not None
    state.figures = replace(state.figures, break_even_alpha=None)
    row = next(f for f in details(state, 0) if f["id"] == "break_even")
    assert row["value"] == "none"
    assert "perfect draft" in row["note"]


def test_hover_and_lock_move_every_picture_and_the_switch_hides() -> None:
    shown = views(decode())
    state, strip = shown.state, shown._trace._strip
    assert shown._trace.spot(state, state.steps - 1) == state.default_spot(state.steps - 1)
    wanted = spot_of(state, "accepted")
    index = 7 + list(state.spots(state.steps - 1, dropped=True)).index(wanted)
    strip._handle_custom_msg({"type": "hover", "index": index}, [])
    shown.render(live=False)
    assert strip.state["selected"] == index
    assert shown._rounds._rows.state["selected"] == list(wanted)
    assert "accepted?" in shown._trace._why.state["lines"][0][1]
    strip._handle_custom_msg({"type": "hover", "index": None}, [])
    shown._rounds._rows._handle_custom_msg({"type": "lock", "round": 1, "row": 0}, [])
    shown.render(live=False)
    assert shown._rounds._rows.state["locked"] == [1, 0]
    assert shown.link()["token"] == "2-0"
    before = len(strip.state["tokens"])
    shown._trace._legend._handle_custom_msg({"type": "dropped", "dropped": False}, [])
    shown.render(live=False)
    assert len(strip.state["tokens"]) == 7 + state.emitted(state.steps - 1) < before
    other = views(decode())
    other.restore({"token": "2-0", "dropped": "hidden"})
    other.render(live=False)
    assert other.link() == {"token": "2-0", "dropped": "hidden"}
    other.reset()  # the run that the link's parameters start
    for event in decode():
        other.fold(event)
    other.render(live=False)
    assert other.link()["token"] == "2-0"
    other.reset()
    assert other.link()["token"] is None


@pytest.mark.parametrize("token", ["99-0", "1-99", "-1-0", "x", "1.5", 7, None])
def test_a_link_to_a_token_that_is_not_there_is_ignored(token: Any) -> None:
    shown = views(decode())
    shown.restore({"token": token})
    shown.render(live=False)
    assert shown._trace._why.state["lines"][0][1].endswith("rejected?")


def test_scrubbing_shows_the_run_as_it_was() -> None:
    shown = views(decode())
    shown._desk.cursor.step = 2
    shown.render(live=False)
    assert shown._rounds._rows.state["total"] == 3
    assert shown._rounds._rows.state["rounds"][0]["index"] == 2
    assert len(shown._pay._race.state["data"]["speculative"]["x"]) == 4


def test_long_runs_are_folded() -> None:
    shown = views(decode(max_new_tokens=512, gamma=16), live=True)
    rows = shown._rounds._rows
    assert len(rows.state["rounds"]) == 8
    assert len(json.dumps(shown._trace._strip.state)) < 120_000
    rows._handle_custom_msg({"type": "expand", "expanded": True}, [])
    shown.render(live=True)
    assert len(rows.state["rounds"]) == rows.state["total"] == shown.steps()
    assert [r["index"] for r in rows.state["rounds"]] == list(range(shown.steps() - 1, -1, -1))
    rows._handle_custom_msg({"type": "expand", "expanded": False}, [])
    shown._trace.hold(Spot(1, 0))
    shown.render(live=True)
    assert 1 in [r["index"] for r in rows.state["rounds"]], "the locked round is among those on screen"


def test_a_round_without_proposals_is_a_plain_step_everywhere() -> None:
    shown = views(decode(Toy(one_hot=True), max_new_tokens=80))
    state = shown.state
    empty = sum(len(r.tokens) == 1 for r in state.rounds)
    assert empty > 1
    assert shown._trace._legend.state["counts"]["plain"] == empty
    kinds = [t["kind"] for t in shown._trace._strip.state["tokens"]]
    assert kinds.count("plain") == empty
    assert kinds.count("bonus") == state.counts(10**6).rounds - empty - kinds.count("resampled")
    shown._trace.hold(spot_of(state, "plain"))
    shown.render(live=False)
    assert shown._trace._answer.state["lines"][0][1].startswith("Nothing was proposed, so this was a plain step. ")
    assert [c[0] for c in shown._trace._bars.state["columns"]] == ["model p"]


def test_the_race_sums_the_same_tokens_and_tells_what_differs_from_the_verdict() -> None:
    shown = views(decode(max_new_tokens=60))
    state = shown.state
    race = race_of(state, state.steps - 1)
    tokens = sum(r.emitted for r in state.rounds)
    ms = sum(r.draft_ms + r.verify_ms + r.judge_ms for r in state.rounds)
    assert list(race.at or ()) == pytest.approx([tokens, ms, sum(t.ms for t in state.plain)])
    words = shown._pay._race_words.state["lines"][0][1]
    assert f"{tokens} tokens took" in words
    assert "median" in words
    assert race.speed is not None
    assert state.figures is not None
    state.figures = replace(state.figures, measured=race.speed)
    shown.render(live=False)
    assert "median" not in shown._pay._race_words.state["lines"][0][1]
    three = sum(r.emitted for r in state.rounds[:3])
    spent = sum(r.draft_ms + r.verify_ms + r.judge_ms for r in state.rounds[:3])
    wanted = [three, spent, sum(t.ms for t in state.plain[:three])]
    assert list(race_of(state, 2).at or ()) == pytest.approx(wanted)
    state.plain.clear()
    assert race_of(state, state.steps - 1).at is None


def test_the_strip_follows_a_living_run_and_the_text_can_be_read() -> None:
    events = decode(Toy(words=WORDS + HOSTILE), max_new_tokens=30)
    assert views(events[:8], live=True)._trace._strip.state["follow"] is True
    shown = views(events)
    assert shown._trace._strip.state["follow"] is False
    text = shown._trace._read.state["lines"][1][1]
    assert "\u202e" not in text
    assert "\n" in text or "\n\n" not in {t.text for r in shown.state.rounds for t in r.tokens}
    assert text.startswith(shown.state.first.text.strip() if shown.state.first else "?")


def test_drafts_are_told_prompt_by_prompt() -> None:
    whole = drafts()
    ranked = [e for e in whole if isinstance(e, DraftRanked) and not e.skipped]
    nan = float("nan")
    told: list[Event] = [whole[0]]
    for done in (1, 2):
        told += [replace(e, prompts=done, of_prompts=12, by_kind=(*e.by_kind[:1], ("list", nan, nan))) for e in ranked]
    told[-1] = replace(ranked[-1], prompts=2, of_prompts=12, by_kind=())
    living = views(told, live=True)._drafts
    assert len(living._bars.state["rows"]) == len(ranked)
    assert living._verdict.state["notes"] == ["After 2 of 12 prompts."]
    assert "list" not in living._caption.state["lines"][0][1]
    stopped = views([*told, RunCancelled(reason="stopped")])
    assert stopped._drafts._verdict.state["notes"] == ["Stopped after 2 of 12 prompts."]
    assert stopped._drafts._verdict.state["tone"] == "none"
    assert len(stopped._drafts._bars.state["rows"]) == len(ranked)
    early = views([*told[:-1], RunCancelled(reason="stopped")])
    assert early._drafts._verdict.state["notes"] == ["Stopped after 1 of 12 prompts."], "what all drafts have seen"


def test_a_trial_stopped_early_is_neutral() -> None:
    events = [*trial()[:12], RunCancelled(reason="stopped")]
    state = folded(events)
    mark, text, notes = trial_verdict(state, state.trial[-1], live=False)
    assert (mark, notes[0]) == ("none", "The trial was stopped before its end.")
    assert text == "No difference from the model's distribution, after 1,000 of 2,000 pairs"


def test_each_task_shows_its_sections_alone() -> None:
    parts = {name: views(events) for name, events in each_task()}
    shown = {name: v.widget.children for name, v in parts.items()}
    assert [len(shown[n]) for n in ("decode", "sweep", "drafts", "trial")] == [7, 2, 2, 3]
    for name, v in parts.items():
        assert v._intro.state["lines"][0][1], name
        assert v.steps() == v.planned_steps() > 1
        assert all(table.rows for table in v.tables()), name
        assert b"# " in make_export("csv", "speculative", None, v.tables())[1]


def test_the_best_gamma_and_the_fastest_draft_are_named() -> None:
    best = views(sweep())
    points = {p.gamma: p.figures.measured or 0 for p in best.state.sweep}
    top = max(points, key=lambda g: points[g])
    assert best._sweep._verdict.state["text"] == f"Best: γ = {top}, {points[top]:.2f} times plain decoding"
    ranked = views(drafts())._drafts
    labels = [r["label"] for r in ranked._bars.state["rows"]]
    assert labels[:4] == [
        "look-up, else the trained head",
        "trained head (EAGLE-style)",
        "prompt look-up",
        "the model's first layers",
    ]
    assert ranked._bars.state["rows"][4]["note"].startswith("skipped: ")
    slow = [
        replace(e, figures=replace(e.figures, measured=0.8)) if getattr(e, "figures", None) else e for e in drafts()
    ]
    assert views(slow)._drafts._verdict.state["text"].startswith("No draft pays")


def test_the_trial_is_green_only_with_power_and_red_when_it_must() -> None:
    good, bad, weak = folded(trial()), folded(trial(wrong=True)), folded(trial(power=0.4))
    assert trial_verdict(good, good.trial[-1], live=False)[0] == "good"
    assert trial_verdict(good, good.trial[3], live=True)[0] == "pending"
    tone_, text, notes = trial_verdict(bad, bad.trial[-1], live=False)
    assert (tone_, text) == ("bad", "Not the model's distribution, after 2,000 of 2,000 pairs")
    assert "mistake" in notes[0]
    assert trial_verdict(weak, weak.trial[-1], live=False)[:2] == (
        "even",
        "Too few draws to tell, after 2,000 of 2,000 pairs",
    )
    missed = folded(trial(break_run="wrong_q"))
    assert trial_verdict(missed, missed.trial[-1], live=False)[0] == "even"
    point = good.trial[-1]
    for value, wanted in ((0.9e-6, "bad"), (1.1e-6, "good")):
        assert trial_verdict(good, replace(point, p_value=value), live=False)[0] == wanted


def test_a_run_that_stopped_or_failed_says_so() -> None:
    for end in ("stopped", "failed"):
        shown = views(decode(Toy(end=end)))
        assert shown._pay._verdict.state["text"] == "The run ended before it was compared with plain decoding."
        figures = {f["id"]: f["value"] for f in shown._pay._figures.state["figures"]}
        assert figures["accept_drafted"]
        assert not figures["predicted"]
    nothing = views([*decode()[:1], RunCancelled()])
    assert nothing._trace._strip.state["tokens"] == []
    assert nothing.steps() == 0


def test_the_player_expects_a_likely_number_of_rounds() -> None:
    events = decode(max_new_tokens=100)
    living = views(events[:12], live=True)
    assert living.steps() < living.planned_steps() <= 100
    assert views(events).planned_steps() == living_total(events)
    assert views(trial()[:5], live=True).planned_steps() == 20


def living_total(events: list[Event]) -> int:
    return sum(isinstance(e, SpeculativeRound) for e in events)


def test_hostile_tokens_stay_text_everywhere() -> None:
    events = decode(Toy(words=WORDS[:4] + HOSTILE), max_new_tokens=80)
    shown = views(events)
    assert visible("\n\n") == "↵↵"
    assert visible("\u202ea") == "U+202Ea"
    assert visible("") == "∅"
    assert visible("  ") == "··"
    assert quoted("x" * 90) == "“" + "x" * 39 + "…”"
    still = poster.body(Recording(tuple(events), ()))
    assert "<img" not in still
    assert "&lt;img src=x onerror=window.X=1&gt;" in still
    assert "\u202e" not in still
    texts = {t["text"] for r in shown._rounds._rows.state["rounds"] for t in r["tokens"]}
    assert not texts & {"\n\n", "", "\u202eabc"}


def test_the_poster_has_the_run_s_marks_and_figures() -> None:
    events = decode(max_new_tokens=400)
    still = poster.body(Recording(tuple(events), ()))
    assert f"<b>{headline(folded(events), 10**6)[0]['value']}</b>" in still
    assert "earlier</span>" in still
    assert still.count("<svg") == 1
    for task, others in each_task():
        assert poster.body(Recording(tuple(others), ())), task


def test_bars_say_what_became_of_a_token() -> None:
    shown = views(decode())
    state = shown.state
    spot = state.default_spot(state.steps - 1)
    token = state.token(spot)
    assert token is not None
    rows = {r["label"]: r for r in shown._trace._bars.state["rows"]}
    assert rows[visible(token.text)]["kind"] == "rejected"
    assert [b[0] for b in rows[visible(token.text)]["bars"]] == [token.p, token.q, 0.0]
    assert any(r["kind"] == "resampled" for r in rows.values())
    gauge = shown._trace._gauge.state
    assert (gauge["accept"], gauge["u"]) == (token.accept, token.u)
    assert gauge["u"] >= gauge["accept"]


def test_the_lesson_has_the_worked_example_from_the_code() -> None:
    shown = views(decode())
    facts = shown.state.started.facts if shown.state.started else None
    lesson = {s["title"]: s for s in shown.lesson(facts)}
    assert lesson["By hand"]["table"]["rows"] == [
        ["A", "0.2", "0.5", "0.4", "0.2", "0"],
        ["B", "0.5", "0.3", "1", "0.3", "0.2"],
        ["C", "0.3", "0.2", "1", "0.2", "0.1"],
    ]
    assert "0.7 of all" in lesson["By hand"]["paragraphs"][0]
    assert "(0, 0.667, 0.333)" in lesson["By hand"]["paragraphs"][0]
    shown._example = {**EXAMPLE, "kept": [0.1, 0.3, 0.2]}
    changed = {s["title"]: s for s in shown.lesson(facts)}
    assert changed["By hand"]["table"]["rows"][0][4] == "0.1", "the figures are the answer's, not the lesson's own"
    shown._example = None
    assert [s["title"] for s in shown.lesson(facts) if "table" in s] == []
