"""The exactness trial's statistics: against scipy, against simulation, and red for everything that is not p."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, chi2, chisquare
from speculative_rounds import Tables, distribution, sample_pairs, tables

from lab.decoding.speculative import chi_square
from lab.decoding.speculative.kernel import Mistake
from lab.decoding.speculative.trial import LEAST_EXPECTED, RED, Trial, firsts_wanted
from lab.errors import BadInput

RUNS = 2000
TARGET, DRAFT = tables(1, 6), tables(2, 6)


def second(p: Tables) -> dict[int, torch.Tensor]:
    return dict(enumerate(p[1]))


def fresh(p: Tables = TARGET, planned: int = RUNS, q: Tables | None = None) -> Trial:
    return Trial(p[0], second(p), planned, alternative=None if q is None else (q[0], second(q)))


def fill(trial: Trial, counts: np.ndarray) -> Trial:
    for one, row in enumerate(counts.tolist()):
        for two, count in enumerate(row):
            for _ in range(count):
                trial.add(one, two)
    return trial


def drawn(p: Tables, runs: int, seed: int) -> np.ndarray:
    pairs = (p[0][:, None] * p[1]).numpy()
    return np.random.default_rng(seed).multinomial(runs, pairs.ravel()).reshape(pairs.shape)


@pytest.mark.parametrize("degrees", [1, 2, 5, 40, 400, 4000])
def test_p_values_and_critical_values_are_scipys(degrees: int) -> None:
    for statistic in (0.5, 1.0, 1.5, 2.0, 4.0):
        value = statistic * degrees
        wanted = float(chi2.sf(value, degrees))
        if wanted > 1e-290:
            assert chi_square.p_value(value, degrees) == pytest.approx(wanted, rel=1e-8)
    assert chi_square.critical_value(degrees, RED) == pytest.approx(float(chi2.isf(RED, degrees)), rel=1e-9)


def test_p_value_at_the_ends() -> None:
    assert chi_square.p_value(5.0, 0) == 1
    assert chi_square.p_value(0.0, 3) == 1
    assert chi_square.p_value(math.inf, 3) == 0
    assert chi_square.p_value(1e6, 3) == 0


@pytest.mark.parametrize("runs", [1, 7, 100, 2000])
def test_expected_variation_is_the_binomials_mean_deviation(runs: int) -> None:
    p = np.array([0.5, 0.3, 0.15, 0.05])
    counts = np.arange(runs + 1)
    wanted = sum(float((np.abs(counts - runs * x) * binom.pmf(counts, runs, x)).sum()) for x in p) / (2 * runs)
    assert chi_square.expected_variation(p, runs) == pytest.approx(wanted, rel=1e-9)
    assert chi_square.expected_variation(np.array([1.0, 0.0]), runs) == 0


def test_the_point_is_scipys_chi_square() -> None:
    counts = drawn(TARGET, RUNS, 3)
    expected = (TARGET[0][:, None] * TARGET[1]).numpy() * RUNS
    trial = fill(fresh(), counts)
    told = trial.point()
    wanted = chisquare(counts.ravel(), expected.ravel())
    assert expected.min() > LEAST_EXPECTED
    assert (told.runs, told.degrees) == (RUNS, 35)
    assert told.statistic == pytest.approx(float(wanted.statistic))
    assert told.p_value == pytest.approx(float(wanted.pvalue))
    assert told.total_variation == pytest.approx(np.abs(counts - expected).sum() / RUNS / 2)
    assert not told.red


def test_p_values_of_exact_pairs_are_spread_evenly_at_every_length() -> None:
    skewed = (distribution(0.6, 0.3, 0.05, 0.03, 0.015, 0.005), TARGET[1])
    variation, expected = [], []
    for runs in (60, 400):  # so that pooling is at work
        values = []
        for seed in range(250):
            told = fill(fresh(skewed, RUNS), drawn(skewed, runs, seed)).point()
            values.append(told.p_value)
            variation.append(told.total_variation)
            expected.append(told.expected_variation)
        for border in (0.05, 0.5, 0.95):
            assert np.mean(np.array(values) < border) == pytest.approx(border, abs=4 * math.sqrt(border * 0.95 / 250))
        assert min(values) > RED
    assert np.mean(variation) == pytest.approx(np.mean(expected), rel=0.02)


def test_cells_are_pooled_by_expectation_alone() -> None:
    vocab = 200
    p = tables(7, vocab, spread=2.0)
    wanted = firsts_wanted(p[0], RUNS)
    assert all(float(p[0][first]) * RUNS >= LEAST_EXPECTED for first in wanted)
    trial = Trial(p[0], {first: p[1][first] for first in wanted}, RUNS)
    rng = np.random.default_rng(1)
    for run in range(RUNS):
        one = int(rng.choice(vocab, p=p[0].numpy()))
        trial.add(one, int(rng.choice(vocab, p=p[1][one].numpy())))
        if run in (0, 20, 500):
            assert trial.point().p_value > 1e-4
    groups = trial._pooled(RUNS)
    shares = np.bincount(groups, weights=trial._probability)
    assert shares.sum() == pytest.approx(1)
    assert (shares * RUNS).min() >= LEAST_EXPECTED
    assert 40 < trial.point().degrees == len(shares) - 1
    assert trial.point().p_value > 1e-3
    assert not trial.point().red


def test_the_draft_turns_it_red_and_that_was_foretold() -> None:
    trial = fill(fresh(q=DRAFT), drawn(DRAFT, RUNS, 0))
    assert trial.point().red
    assert trial.point().power > 0.999
    assert trial.planned_power() > 0.999
    same = fresh(q=TARGET)
    assert same.planned_power() < 1e-3, "a draft equal to the target cannot be told from it"
    assert fresh().planned_power() == 0


@pytest.mark.parametrize("mistake", ["no_residual", "wrong_q", "processors_skipped", "top_token_on_rejection"])
def test_each_mistake_turns_it_red(mistake: Mistake) -> None:
    raw = ((TARGET[0].log() / 2).softmax(-1), (TARGET[1].log() / 2).softmax(-1))
    counts = sample_pairs(TARGET, DRAFT, RUNS, seed=4, mistake=mistake, raw=raw)
    assert fill(fresh(), counts).point().red


def test_a_stale_cache_turns_it_red_by_the_second_token() -> None:
    counts = sample_pairs(TARGET, DRAFT, RUNS, seed=4, stale=True)
    assert fill(fresh(), counts).point().red
    expected = TARGET[0].numpy() * RUNS
    assert chisquare(counts.sum(1), expected).pvalue > 1e-3, "the first token alone would not show it"
    assert not fill(fresh(), sample_pairs(TARGET, DRAFT, RUNS, seed=4)).point().red


def test_power_agrees_with_simulated_trials() -> None:
    p = (TARGET[0][:, None] * TARGET[1]).numpy().ravel()
    q = (DRAFT[0][:, None] * DRAFT[1]).numpy().ravel()
    rng = np.random.default_rng(0)
    seen = []
    for weight in (0.08, 0.1, 0.12, 0.15):
        truth = (1 - weight) * p + weight * q
        told = chi_square.power(p, truth, RUNS, RED)
        draws = rng.multinomial(RUNS, truth, size=2000)
        statistics = ((draws - RUNS * p) ** 2 / (RUNS * p)).sum(1)
        seen.append(float(np.mean(statistics > chi2.isf(RED, len(p) - 1))))
        assert told == pytest.approx(seen[-1], abs=0.05)
    assert seen[0] < 0.35
    assert seen[-1] > 0.65


def test_power_against_p_itself_is_the_borders_own_level() -> None:
    p = (TARGET[0][:, None] * TARGET[1]).numpy().ravel()
    assert chi_square.power(p, p, RUNS, 0.05) == pytest.approx(0.05, abs=0.02)
    assert chi_square.power(p, p, RUNS, 0.5) == pytest.approx(0.5, abs=0.06)


def test_rare_pairs_are_pooled_with_their_own_first_token() -> None:
    even = torch.full((50,), 0.02, dtype=torch.float64)
    p = torch.zeros(50, dtype=torch.float64)
    p[:2] = 0.5
    trial = Trial(p, {0: even, 1: even}, RUNS)
    for run in range(60):  # each pair is expected 0.6 times, each first token 30 times
        trial.add(0, run % 50)
    told = trial.point()
    assert told.degrees == 1
    assert told.red, "token 1 never came first"


def test_a_match_rate_would_miss_what_the_trial_finds() -> None:
    p = distribution(0.5, 0.3, 0.2)
    swapped = distribution(0.5, 0.2, 0.3)  # the same sum of squares: two samples agree as often
    assert float(p @ p) == pytest.approx(float(swapped @ swapped))
    both = (p, p.expand(3, 3))
    assert fill(fresh(both), drawn((swapped, p.expand(3, 3)), RUNS, 0)).point().red


def test_pairs_shown() -> None:
    told = fill(fresh(), drawn(TARGET, RUNS, 0)).point()
    assert [pair.expected for pair in told.pairs[:-1]] == sorted((x.expected for x in told.pairs[:-1]), reverse=True)
    assert (told.pairs[-1].first, told.pairs[-1].second) == (-1, -1)
    assert sum(pair.observed for pair in told.pairs) == RUNS
    assert sum(pair.expected for pair in told.pairs) == pytest.approx(RUNS)
    top = told.pairs[0]
    assert top.expected == pytest.approx(float(TARGET[0][top.first] * TARGET[1][top.first][top.second]) * RUNS)


def test_before_the_first_pair_nothing_is_claimed() -> None:
    told = fresh(q=DRAFT).point()
    assert (told.runs, told.degrees, told.p_value, told.power, told.red) == (0, 0, 1.0, 0.0, False)
    few = fill(fresh(q=DRAFT), drawn(TARGET, 3, 0)).point()
    assert (few.degrees, few.p_value) == (0, 1.0)


def test_a_certain_pair_admits_no_other() -> None:
    certain = (distribution(0, 1, 0), torch.eye(3, dtype=torch.float64))
    trial = fresh(certain)
    for _ in range(50):
        trial.add(1, 1)
    assert trial.point().p_value == 1
    trial.add(1, 2)
    assert trial.point().red


def test_firsts_without_a_second_are_tested_by_their_first_token() -> None:
    trial = Trial(TARGET[0], {}, RUNS)
    told = fill(trial, drawn(TARGET, RUNS, 0)).point()
    assert told.degrees == 5
    assert not told.red
    wrong = Trial(TARGET[0], {}, RUNS, alternative=(DRAFT[0], {}))
    assert fill(wrong, drawn(DRAFT, RUNS, 0)).point().red
    assert wrong.planned_power() > 0.99


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="plans 0"):
        fresh(planned=0)
    with pytest.raises(BadInput, match="outside the vocabulary"):
        fresh().add(6, 0)
    with pytest.raises(BadInput, match="over one vocabulary"):
        Trial(TARGET[0], {0: torch.ones(3)}, RUNS)
    with pytest.raises(BadInput, match="sums to"):
        Trial(TARGET[0] * math.nan, {}, RUNS)
