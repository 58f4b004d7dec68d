"""What the `speculative` page says of each token, in words, and in which order it stands."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from pages import fold_all
from speculative_sim import Decoder, Toy, decode, trial

from lab.events import Event
from lab.events.speculative import Judged, SpeculativeRound, TrialPoint, chi_square_in_words
from lab.experiments.speculative.params import SpeculativeParams
from widgets.speculative import sentences
from widgets.speculative.figures import trial_figures
from widgets.speculative.state import FIRST, SpeculativeState, Spot, reading_order
from widgets.speculative.trial_section import trial_verdict


def folded(events: list[Event]) -> SpeculativeState:
    return fold_all(SpeculativeState, events)


def judged(**changes: Any) -> Judged:
    token = Judged(0, 3, 7, " the", "rejected", 0.21, 0.62, 0.21 / 0.62, 0.71, 0.5, (), -1)
    return replace(token, **changes)


def round_of(*tokens: Judged) -> SpeculativeRound:
    return SpeculativeRound(
        index=0,
        gamma=2,
        tokens=tokens,
        emitted=1,
        source="",
        draft_ms=1.0,
        verify_ms=2.0,
        judge_ms=0.1,
        target_positions=(9, 12, 10),
        draft_positions=(9, 11, 9),
        target_bytes=1,
        draft_bytes=1,
    )


def said(token: Judged, *others: Judged, **params: Any) -> str:
    state = folded(decode(max_new_tokens=2, **params)[:1])
    state.rounds.append(round_of(token, *others))
    return " ".join(sentences.sentences(state, Spot(0, 0)))


def test_a_rejection_is_told_from_its_numbers() -> None:
    words = said(judged(), judged(kind="resampled", text=" a", q=math.nan, u=math.nan))
    assert words == (
        "The draft gave “ the” 0.62, the model gives it 0.21. So it is accepted with probability p / q = 0.34; the "
        "draw was 0.71: rejected. The replacement “ a” was drawn from what the model wants more than the draft."
    )


def test_every_kind_has_its_sentence() -> None:
    assert "always accepted" in said(judged(kind="accepted", p=0.5, q=0.3, accept=1.0))
    assert "the draw was 0.10, below that: accepted" in said(judged(kind="accepted", u=0.1))
    assert "(q = 1)" in said(judged(q=1.0))
    after = judged(kind="unjudged", depth=1, position=4, text=" x", parent=0)
    state = folded(decode(max_new_tokens=2)[:1])
    state.rounds.append(round_of(judged(), after))
    assert sentences.sentences(state, Spot(0, 1))[0] == "Never judged: the token before it was rejected."
    assert "All proposed tokens were accepted" in said(judged(kind="bonus"), judged(kind="accepted"))
    assert "Nothing was proposed, so this was a plain step." in said(judged(kind="plain"))
    assert "drawn from what it wants more" in said(judged(kind="resampled"), judged())
    assert said(judged(ends=True)).endswith("It ends the text.")


def test_greedy_speaks_of_the_top_token() -> None:
    words = said(judged(u=math.nan), judged(kind="resampled", text=" a"), do_sample=False)
    assert words.startswith("The model's top token here is “ a”, so “ the” is rejected.")
    assert "just what the draft proposed" in said(judged(kind="accepted", u=math.nan), do_sample=False)


@pytest.mark.parametrize("mistake", ["no_residual", "processors_skipped", "top_token_on_rejection"])
def test_a_broken_rule_is_never_told_as_the_right_one(mistake: str) -> None:
    pair = (judged(), judged(kind="resampled", text=" a"))
    assert "wants more than the draft" not in said(*pair, break_run=mistake)
    assert "wants more than the draft" not in said(*reversed(pair), break_run=mistake)
    assert "wants more than the draft" in said(*pair)


def test_an_accepted_and_a_rejected_draw_never_read_alike() -> None:
    assert sentences.pair(0.3404, 0.3401) == ("0.3404", "0.3401")
    assert sentences.pair(0.34, 0.71) == ("0.34", "0.71")
    assert (sentences.share(0.9996), sentences.share(1.0), sentences.share(0.0)) == ("more than 0.999", "1", "0")


def test_what_was_dropped_stands_before_what_replaced_it() -> None:
    state = folded(decode(max_new_tokens=60))
    for round_ in state.rounds:
        kinds = [round_.tokens[i].kind for i in reading_order(round_, dropped=True)]
        assert sorted(reading_order(round_, dropped=True)) == list(range(len(round_.tokens)))
        if "resampled" in kinds:
            assert kinds[-1] == "resampled"
            assert kinds.index("rejected") < kinds.index("resampled")
    standing = [state.token(s) for s in state.spots(state.steps - 1, dropped=False)]
    assert len(standing) == state.emitted(state.steps - 1)
    assert [t.position for t in standing if t] == list(range(1, 60))


def test_a_tree_s_rejected_sibling_stands_beside_the_accepted_one() -> None:
    tree = round_of(
        judged(text=" a"),
        judged(text=" b", kind="accepted", u=0.1),
        judged(text=" c", kind="unjudged", depth=1, position=4, parent=0),
        judged(text=" d", kind="bonus", depth=1, position=4, parent=1),
    )
    assert reading_order(tree, dropped=True) == [0, 1, 2, 3]
    assert reading_order(tree, dropped=False) == [1, 3]
    state = folded(decode(max_new_tokens=2)[:1])
    state.rounds.append(tree)
    assert "The next guess for the same place, “ b”, was accepted." in sentences.sentences(state, Spot(0, 0))


def test_the_first_token_is_explained_too() -> None:
    state = folded(decode())
    assert "No draft was asked." in sentences.sentences(state, Spot(FIRST, 0))[0]
    assert sentences.heading(state, Spot(FIRST, 0)).startswith("Where does")
    assert isinstance(folded(trial()).trial[0], TrialPoint)


def test_a_trial_without_a_degree_of_freedom_is_told_in_words() -> None:
    state = folded(trial())
    point = replace(state.trial[-1], degrees=0)
    impossible = replace(point, statistic=math.inf, p_value=0.0)
    one_group = replace(point, statistic=0.0, p_value=1.0, power=0.0)
    for told, words, heading in (
        (impossible, "a pair came to which the model gives no probability", "Not the model's distribution"),
        (one_group, "all pairs fall into one group", "Too few draws to tell"),
    ):
        state.trial[-1] = told
        note = trial_figures(state, len(state.trial) - 1)[0]["note"]
        assert words in note
        tone, text, notes = trial_verdict(state, told, live=False)
        assert text.startswith(heading)
        assert tone == ("bad" if told is impossible else "even")
        said_ = " ".join([note, text, *notes])
        assert words.split(" which")[0].lower() in said_.lower()
        assert not re.search(r"\binf|\bnan|\b0 degrees|–", said_), said_
    assert "with 1 degree of freedom" in chi_square_in_words(3.2, 1)
    assert chi_square_in_words(1234.5, 30) == "χ² = 1,234 with 30 degrees of freedom"


def test_the_simulator_keeps_the_rule() -> None:
    """The page's words are tested on runs that could be real."""
    decoder = Decoder(Toy(), SpeculativeParams.model_validate({"gamma": 4}))
    rounds = [decoder.round(i, 1, 9, 99) for i in range(300)]
    tokens = [t for r in rounds for t in r.tokens if t.kind in ("accepted", "rejected")]
    assert all((t.u < t.accept) == (t.kind == "accepted") for t in tokens)
    expected = sum(t.alpha for t in tokens) / len(tokens)
    assert sum(t.kind == "accepted" for t in tokens) / len(tokens) == pytest.approx(expected, abs=0.05)


def test_a_depth_that_no_round_can_have_is_given_no_cells() -> None:
    state = SpeculativeState(rounds=[round_of(judged(depth=0), judged(depth=2_000_000))])
    assert state.counts(0).by_depth == ((1, 0), (0, 0))
