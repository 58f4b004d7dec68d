"""The figures of a run: closed forms, a simulation, costs, break-even, the verdict's words, adaptive gamma."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.decoding.speculative.adaptive import MOST, AdaptiveGamma, next_gamma
from lab.decoding.speculative.figures import Figures, Tally, break_even_alpha, expected_tokens, mean_expected
from lab.decoding.speculative.kernel import RoundVerdict, RowVerdict
from lab.decoding.tree import Tree
from lab.errors import BadInput
from lab.events.speculative import SpeculativeFigures

NOTHING = torch.empty(0)
few = settings(max_examples=60, deadline=None)


def chain(kinds: str, alpha: float = 0.5) -> RoundVerdict:
    """A chain's verdict from one letter a token: a(ccepted), r(ejected), u(njudged)."""
    rows = tuple(
        RowVerdict("unjudged", 0.1, 0.2)
        if kind == "u"
        else RowVerdict("accepted" if kind == "a" else "rejected", 0.1, 0.2, 0.5, 0.5, alpha, 1 - alpha)
        for kind in kinds
    )
    path = tuple(range(kinds.count("a")))
    return RoundVerdict(rows, path, 0, "resampled" if "r" in kinds else "bonus", NOTHING, 0.5)


def take(tally: Tally, kinds: str, *, alpha: float = 0.5, ms: tuple[float, float, float] = (1.0, 10.0, 0.0)) -> None:
    verdict = chain(kinds, alpha)
    tally.take(
        verdict,
        Tree.chain(len(kinds)),
        emitted=len(verdict.path) + 1,
        draft_ms=ms[0],
        verify_ms=ms[1],
        judge_ms=ms[2],
    )


@given(st.floats(0, 1), st.integers(0, 16))
@few
def test_expected_tokens_is_the_papers_formula(alpha: float, gamma: int) -> None:
    got = expected_tokens(alpha, gamma)
    assert 1 <= got <= gamma + 1
    if alpha < 1 - 1e-6:
        assert got == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha), rel=1e-9)


def test_expected_tokens_at_the_ends() -> None:
    assert expected_tokens(1.0, 5) == 6
    assert expected_tokens(1 - 1e-15, 5) == pytest.approx(6)
    assert expected_tokens(0.0, 5) == 1
    assert expected_tokens(0.7, 0) == 1
    with pytest.raises(BadInput, match="alpha is"):
        expected_tokens(1.5, 2)
    with pytest.raises(BadInput, match="gamma is"):
        expected_tokens(0.5, -1)


def test_expectation_against_a_simulation() -> None:
    rng = np.random.default_rng(0)
    for alpha, gamma in ((0.8, 4), (0.4, 3), (0.95, 8)):
        tally = Tally("eagle", gamma)
        for _ in range(4000):
            hits = int(np.argmin(np.append(rng.random(gamma) < alpha, False)))
            take(tally, ("a" * hits + "r" + "u" * gamma)[:gamma], alpha=alpha)
        told = tally.figures([10.0])
        assert told.alpha == pytest.approx(alpha)
        assert told.tokens_per_pass == pytest.approx(told.expected_tokens, rel=0.025)
        assert told.accept_judged == pytest.approx(alpha, abs=0.02)
        assert told.tokens_per_pass != pytest.approx(expected_tokens(alpha, gamma - 1), rel=0.025)


def test_counts_and_rates() -> None:
    tally = Tally("eagle", 3, other_tokens=1)
    take(tally, "aaa", alpha=0.9)
    take(tally, "aru", alpha=0.6)
    take(tally, "ruu", alpha=0.3)
    told = tally.figures([10.0, 10.0])
    assert (told.drafted, told.judged, told.accepted, told.rounds, told.new_tokens) == (9, 6, 4, 3, 8)
    assert told.accept_judged == pytest.approx(4 / 6)
    assert told.accept_drafted == pytest.approx(4 / 9)
    assert told.by_depth == ((3, 2), (2, 1), (1, 1))
    assert told.tokens_per_pass == pytest.approx(7 / 3)
    assert told.alpha == pytest.approx((3 * 0.9 + 2 * 0.6 + 0.3) / 6)
    assert told.total_variation == pytest.approx(1 - (told.alpha or 0))
    assert told.expected_tokens == pytest.approx(expected_tokens(told.alpha or 0, 3))
    assert told.mean_gamma == 3


def test_costs_prediction_and_measurement() -> None:
    tally = Tally("eagle", 2)
    for kinds in ("aa", "ar", "aa", "ru"):
        take(tally, kinds, alpha=0.7, ms=(4.0, 15.0, 1.0))
    told = tally.figures([10.0] * 9)
    assert told.c == pytest.approx(0.2)
    assert told.v == pytest.approx(1.6)
    assert told.predicted == pytest.approx(expected_tokens(0.7, 2) / (2 * 0.2 + 1.6))
    assert told.speculative_ms == pytest.approx(4 * 20 / 9)
    assert told.measured == pytest.approx(10 / (80 / 9))
    assert told.measured == pytest.approx((told.tokens_per_pass or 0) / (2 * 0.2 + 1.6))
    assert told.break_even_alpha is not None
    assert expected_tokens(told.break_even_alpha, 2) == pytest.approx(2.0)


def test_a_hiccup_moves_neither_side() -> None:
    tally = Tally("eagle", 2)
    for index in range(21):
        take(tally, "aa", ms=(2.0, 900.0 if index == 4 else 18.0, 0.0))
    told = tally.figures([10.0] * 20 + [700.0])
    assert told.plain_ms == 10
    assert told.speculative_ms == pytest.approx(20 / 3)
    assert told.measured == pytest.approx(1.5)
    sums = (2.0 * 21 + 18.0 * 20 + 900.0) / 63
    assert sums > 2 * told.speculative_ms, "what sums would have said"


def test_verifications_of_different_lengths_are_not_mixed() -> None:
    tally = Tally("eagle", 0)
    for index in range(5):
        take(tally, "aa" if index < 3 else "aaaaaaaa", ms=(0.0, 10.0 if index < 3 else 20.0, 0.0))
    told = tally.figures([10.0])
    assert told.v == pytest.approx((3 * 10 + 2 * 20) / 5 / 10)
    assert told.v != pytest.approx(1.0), "the median of them all"


def test_lucky_rounds_are_not_favoured() -> None:
    tally = Tally("eagle", 3)
    for kinds in ("aaa", "aaa", "ruu"):
        take(tally, kinds, ms=(0.0, 20.0, 0.0))
    told = tally.figures([10.0])
    assert told.speculative_ms == pytest.approx(60 / 9)
    assert told.speculative_ms != pytest.approx(20 / 4), "the median of each round's time over its tokens"


def test_a_look_up_that_is_cheap_when_it_misses_keeps_its_dear_rounds() -> None:
    tally = Tally("lookup_eagle", 2)
    for index in range(10):
        take(tally, "aa", ms=(0.0 if index < 6 else 10.0, 10.0, 0.0))
    assert tally.figures([10.0]).c == pytest.approx(4.0 / 20)


def test_rounds_without_a_proposal_expect_one_token() -> None:
    tally = Tally("lookup", 4)
    for _ in range(3):
        take(tally, "", ms=(0.1, 10.0, 0.0))
    nothing = tally.figures([10.0])
    assert (nothing.accept_judged, nothing.accept_drafted, nothing.c, nothing.alpha) == (None, None, None, None)
    assert (nothing.expected_tokens, nothing.tokens_per_pass, nothing.drafted) == (1, 1, 0)
    assert nothing.break_even_alpha is None
    take(tally, "aaaa", alpha=0.8, ms=(0.1, 10.0, 0.0))
    told = tally.figures([10.0])
    assert told.expected_tokens == pytest.approx((3 + expected_tokens(0.8, 4)) / 4)
    assert told.expected_tokens != pytest.approx(expected_tokens(0.8, 4)), "gamma as asked for would promise this"


def test_adaptive_gamma_has_the_mean_of_each_rounds_expectation() -> None:
    tally = Tally("eagle", 0)
    take(tally, "aa", alpha=0.5)
    take(tally, "aaru", alpha=0.5)
    told = tally.figures([10.0])
    assert (told.gamma, told.mean_gamma) == (0, 3)
    assert told.expected_tokens == pytest.approx((expected_tokens(0.5, 2) + expected_tokens(0.5, 4)) / 2)
    assert told.expected_tokens != pytest.approx(expected_tokens(0.5, 3))


def test_nothing_of_nothing_is_no_rate() -> None:
    told = Tally("eagle", 3, other_tokens=1).figures([])
    assert told.new_tokens == 1
    assert math.isnan(told.plain_ms)
    assert math.isnan(told.speculative_ms)
    rates = ("accept_judged", "accept_drafted", "tokens_per_pass", "alpha", "total_variation", "expected_tokens")
    assert [getattr(told, name) for name in rates] == [None] * 6
    assert [getattr(told, name) for name in ("c", "v", "predicted", "measured", "break_even_alpha")] == [None] * 5
    assert told.verdict.startswith("No speed to tell")
    without_plain = Tally("eagle", 3)
    take(without_plain, "aaa")
    assert without_plain.figures([]).measured is None
    assert without_plain.figures([]).accept_judged == 1


def test_candidates_of_one_position_share_its_alpha() -> None:
    rows = (
        RowVerdict("rejected", 0.5, 1.0, 0.5, 0.9, 0.7, 0.3),
        RowVerdict("accepted", 0.2, 1.0, 0.4, 0.1, 0.7, 0.3),
        RowVerdict("unjudged", 0.2, 1.0),
        RowVerdict("accepted", 0.1, 1.0, 0.1, 0.0, 0.1, 0.9),
    )
    tally = Tally("retrieval", 2)
    tree = Tree((-1, -1, 0, 1))
    verdict = RoundVerdict(rows, (1, 3), 0, "bonus", NOTHING, 0.5)
    tally.take(verdict, tree, emitted=3, draft_ms=0.0, verify_ms=10.0, judge_ms=0.0)
    told = tally.figures([10.0])
    assert told.alpha == pytest.approx((0.7 + 0.1) / 2)
    assert told.by_depth == ((2, 1), (1, 1))
    assert (told.drafted, told.judged, told.accepted) == (4, 3, 2)
    assert told.expected_tokens == pytest.approx(expected_tokens(0.4, 2)), "two levels, not four tokens"
    with pytest.raises(BadInput, match="tree of 1"):
        tally.take(verdict, Tree.chain(1), emitted=1, draft_ms=0, verify_ms=0, judge_ms=0)


@given(st.dictionaries(st.integers(0, 16), st.integers(1, 9), min_size=1), st.floats(0.1, 20))
@few
def test_break_even_solves_the_prediction(gammas: dict[int, int], cost: float) -> None:
    alpha = break_even_alpha(gammas, cost)
    most = mean_expected(1.0, gammas)
    assert most is not None
    if cost >= most:
        assert alpha is None
    elif cost <= 1:
        assert alpha == 0
    else:
        assert alpha is not None
        assert mean_expected(alpha, gammas) == pytest.approx(cost, abs=1e-9)


def test_break_even_at_the_ends() -> None:
    assert break_even_alpha({}, 1.0) is None
    assert break_even_alpha({3: 1}, 4.0) is None
    assert break_even_alpha({3: 1}, math.nan) is None
    assert break_even_alpha({1: 1}, 1.5) == pytest.approx(0.5)


def said(kinds: list[str], ms: tuple[float, float, float]) -> str:
    tally = Tally("eagle", 3)
    for one in kinds:
        take(tally, one, alpha=one.count("a") / max(1, len(one)), ms=ms)
    return tally.figures([10.0]).verdict


def test_the_verdict_names_the_largest_cause() -> None:
    assert said(["aaa"], (1.0, 12.0, 0.0)).startswith(
        "3.08 × faster: a round brings 4.00 tokens and costs 1.30 plain steps."
    )
    assert said(["ar"], (2.0, 17.8, 0.2)).startswith("About as fast (1.00 ×)")
    draft = said(["aaa", "aar", "aru", "ruu"], (20.1, 13.0, 0.0))
    assert draft.startswith("0.76 ×: slower, because the draft costs 0.67 of a step for each of 3.0 tokens")
    verification = said(["aaa", "aar", "ruu", "aru"], (0.3, 45.0, 0.0))
    assert (
        "slower, because verifying 3.0 proposed tokens and the one before them costs 4.50 plain steps" in verification
    )
    acceptance = said(["ruu"] * 9 + ["aru"], (1.0, 12.0, 0.0))
    assert "slower, because the acceptance is low, α = 0.06; it pays above α = 0.23. A round brings" in acceptance
    assert "slower, because the draft proposes only 0.2 tokens a round" in said([""] * 9 + ["ar"], (0.2, 11.5, 0.0))


def test_figures_fill_the_event() -> None:
    assert {f.name for f in fields(Figures)} == {f.name for f in fields(SpeculativeFigures)}
    tally = Tally("eagle", 2)
    take(tally, "aa")
    assert SpeculativeFigures(**vars(tally.figures([10.0]))).measured == pytest.approx(30 / 11)


def test_adaptive_gamma_climbs_by_two_and_falls_by_one() -> None:
    pace = AdaptiveGamma(4)
    assert [pace.after(4, 4), pace.after(6, 2), pace.after(5, 5), pace.after(0, 0)] == [6, 5, 7, 7]
    assert next_gamma(1, 1, 0) == 1
    assert next_gamma(MOST - 1, 15, 15) == MOST
    assert next_gamma(8, 3, 3) == 10, "a draft that had fewer, all accepted"
    for bad in (0, MOST + 1):
        with pytest.raises(BadInput, match="gamma starts"):
            AdaptiveGamma(bad)
