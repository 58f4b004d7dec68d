"""The search on tables: the lesson's example, fates, ties, the shelf and the stopping rules."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from beam_runs import Searched, drained
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.decoding.beam import search
from lab.decoding.beam.candidates import Continuation, best_continuations
from lab.decoding.beam.hypotheses import Finished, Pool, StopRule
from lab.decoding.beam.search import Settings
from lab.decoding.beam.table import NAMES, TableBeams, lesson_search
from lab.decoding.processors import Repetition
from lab.errors import BadInput, ModelError

END = 0


class RandomBeams:
    """Another random distribution after every text, the same for the same seed."""

    def __init__(self, vocab: int, seed: int, levels: int = 0) -> None:
        self._vocab, self._seed, self._levels = vocab, seed, levels
        self._texts: list[tuple[int, ...]] = [()]

    def first(self) -> Any:
        yield from ()
        return self._look_up()

    def extend(self, rows: Any, token_ids: Any) -> Any:
        yield from ()
        self._texts = [(*self._texts[row], token) for row, token in zip(rows, token_ids, strict=True)]
        return self._look_up()

    def _look_up(self) -> torch.Tensor:
        rows = []
        for text in self._texts:
            own = torch.Generator().manual_seed(hash((self._seed, text)) % 2**31)
            row = torch.randn(self._vocab, generator=own)
            # A few levels only make many equal scores.
            rows.append((row * self._levels).round() / self._levels if self._levels else row)
        return torch.log_softmax(torch.stack(rows), dim=-1)


def uniform(vocab: int, depth: int) -> TableBeams:
    texts: list[tuple[int, ...]] = [()]
    for _ in range(depth - 1):
        texts += [(*text, token) for text in texts for token in range(vocab)]
    return TableBeams(vocab, {text: dict.fromkeys(range(vocab), 1 / vocab) for text in texts})


# --- the lesson ---------------------------------------------------------------------------------------------------


def test_the_lesson_greedy_finds_24_percent_and_two_beams_36() -> None:
    for width, winner, probability in ((1, ["A", "continue"], 0.24), (2, ["B", "end"], 0.36)):
        _, shelf, tree = lesson_search(width)
        assert [NAMES[token] for token in tree.tokens(shelf[0].node)] == winner
        assert math.exp(shelf[0].score) == pytest.approx(probability, abs=1e-7)


def test_the_lesson_greedy_has_thrown_b_away_and_says_why() -> None:
    steps, _, _ = lesson_search(1)
    lost = steps[0].candidates[1]
    assert (NAMES[lost.token_id], lost.fate, lost.reason) == ("B", "pruned", "rank")
    steps, shelf, _ = lesson_search(2)
    assert [c.fate for c in steps[0].candidates] == ["kept", "kept"]
    assert [h.is_end for h in shelf] == [True, False]
    assert {c.reason for c in steps[1].candidates if c.fate == "pruned"} == {"not_a_hypothesis"}


# --- invariants ---------------------------------------------------------------------------------------------------


def check(done: Searched, given_: Settings) -> None:
    """What holds for any search."""
    ends = set(given_.end_token_ids)
    before: tuple[int, ...] = (-1,)
    score = {-1: 0.0}
    for step in done.steps:
        ranks = [c.rank for c in step.candidates]
        assert ranks == list(range(len(ranks)))
        assert len(ranks) <= given_.candidates
        assert [c.score for c in step.candidates] == sorted((c.score for c in step.candidates), reverse=True)
        last = step.index + 1 == given_.max_new_tokens
        for c in step.candidates:
            assert c.parent == before[c.beam]
            assert c.score == pytest.approx(score[c.parent] + c.log_prob, rel=1e-6, abs=1e-6)
            score[c.id] = c.score
            ended = last or c.token_id in ends
            # Kept, finished and pruned partition the candidates, and each has its reason.
            assert (c.fate == "kept") == (c.becomes >= 0)
            assert (c.reason == "") == (c.fate != "pruned")
            if c.fate == "kept":
                assert not ended
            elif c.fate == "finished":
                assert ended
                assert c.rank < given_.width
            elif c.reason == "rank":
                assert not ended
            elif c.reason == "not_a_hypothesis":
                assert ended
                assert c.rank >= given_.width
            else:
                assert ended
                assert c.rank < given_.width
        kept = sorted((c for c in step.candidates if c.fate == "kept"), key=lambda c: c.becomes)
        assert [c.becomes for c in kept] == list(range(len(kept)))
        assert [c.rank for c in kept] == sorted(c.rank for c in kept)
        assert tuple(c.id for c in kept) == step.running
        assert len(step.running) <= given_.width
        if len(step.running) < given_.width:
            assert not any(c.reason == "rank" for c in step.candidates)
        assert [h.score for h in step.shelf] == sorted((h.score for h in step.shelf), reverse=True)
        assert {c.id for c in step.candidates if c.fate == "finished"} <= {h.node for h in step.shelf}
        before = step.running
    assert [bool(s.stop) for s in done.steps] == [False] * (len(done.steps) - 1) + [True]
    assert done.steps[-1].shelf == tuple(done.hypotheses)
    parents = set(done.tree.parents)
    for hypothesis in done.hypotheses:
        tokens = done.tree.tokens(hypothesis.node)
        edges = [done.tree.log_probs[n] for n in done.tree.path(hypothesis.node)]
        # Case B4: the end token counts, and nothing follows it.
        assert hypothesis.length == len(tokens)
        assert not ends & set(tokens[:-1])
        assert hypothesis.is_end == (tokens[-1] in ends)
        assert hypothesis.node not in parents
        assert hypothesis.sum_log_prob == pytest.approx(sum(edges), rel=1e-5, abs=1e-5)
        assert hypothesis.score == pytest.approx(sum(edges) / len(tokens) ** given_.length_penalty, rel=1e-5)


@given(
    seed=st.integers(0, 10_000),
    vocab=st.integers(2, 12),
    width=st.integers(1, 6),
    tokens=st.integers(1, 6),
    length_penalty=st.sampled_from([-1.0, 0.0, 0.7, 1.0, 2.0]),
    early_stopping=st.sampled_from(["true", "false", "never"]),
    ends=st.sets(st.integers(0, 1), max_size=2),
    levels=st.sampled_from([0, 1]),
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_every_candidate_has_one_fate_and_scores_add_up(
    seed: int,
    vocab: int,
    width: int,
    tokens: int,
    length_penalty: float,
    early_stopping: Any,
    ends: set[int],
    levels: int,
) -> None:
    given_ = Settings(width, tokens, length_penalty, early_stopping, tuple(ends))
    check(drained(RandomBeams(vocab, seed, levels), given_), given_)


def check_many(given_: Settings) -> None:
    for seed in range(20):
        check(drained(RandomBeams(5, seed), given_, [1, 1]), given_)


def test_what_the_mutations_below_check_holds_without_them() -> None:
    check_many(Settings(3, 5, 1.0, "false", (END,)))


@pytest.mark.parametrize("mistake", ["count_prompt_in_length", "drop_end_token"])
def test_the_invariants_see_a_wrong_length(mistake: Any) -> None:
    given_ = Settings(3, 5, 1.0, "false", (END,), mistake=mistake)
    with pytest.raises(AssertionError):
        check_many(given_)


def test_the_invariants_see_that_all_candidates_may_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "may_finish", property(lambda self: self.candidates))
    given_ = Settings(3, 5, 1.0, "false", (END,))
    with pytest.raises(AssertionError):
        check_many(given_)


# --- ties ---------------------------------------------------------------------------------------------------------


def test_equal_scores_go_to_the_lower_beam_then_the_lower_token() -> None:
    """Case B8: with equal probabilities everywhere the order is that of the rows and the vocabulary."""
    done = drained(uniform(5, 3), Settings(width=3, max_new_tokens=3))
    assert [(c.beam, c.token_id) for c in done.steps[0].candidates] == [(0, t) for t in range(5)]
    for step in done.steps[1:]:
        assert [(c.beam, c.token_id) for c in step.candidates] == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]
    assert done.sequences == [[0, 0, 0], [0, 0, 1], [0, 0, 2]]


def test_ties_at_the_border_are_settled_among_all_equals() -> None:
    log_probs = torch.full((4, 50_000), -3.0)
    log_probs[2, 7] = -1.0
    found = best_continuations(log_probs, [0.0] * 4, 3)
    assert [(c.beam, c.token_id) for c in found] == [(2, 7), (0, 0), (0, 1)]


def _by_token_first(log_probs: torch.Tensor, sums: list[float], count: int) -> list[Continuation]:
    every = best_continuations(log_probs, sums, log_probs.numel())
    return sorted(every, key=lambda c: (-c.score, c.token_id, c.beam))[:count]


def test_another_order_of_ties_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "best_continuations", _by_token_first)
    with pytest.raises(AssertionError):
        test_equal_scores_go_to_the_lower_beam_then_the_lower_token()


def test_what_is_impossible_is_no_candidate() -> None:
    beams = TableBeams(4, {(): {1: 1.0}, (1,): {2: 0.5, 3: 0.5}})
    done = drained(beams, Settings(width=3, max_new_tokens=2))
    assert [len(s.candidates) for s in done.steps] == [1, 2]
    assert done.sequences == [[1, 2], [1, 3]]


def test_where_no_text_can_go_on_the_search_ends() -> None:
    beams = TableBeams(3, {(): {END: 0.5, 1: 0.5}, (1,): {END: 1.0}})
    done = drained(beams, Settings(width=4, max_new_tokens=9, end_token_ids=(END,)))
    assert done.sequences == [[1, END], [END]]
    assert done.steps[-1].stop == "no text can go on"
    assert math.isnan(done.steps[-1].best_possible)


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ModelError, match="NaN"):
        best_continuations(torch.tensor([[0.0, math.nan]]), [0.0], 1)


# --- the shelf ----------------------------------------------------------------------------------------------------


def _finished(node: int, length: int, total: float, power: float) -> Finished:
    return Finished(node, length, total, total / length**power, True)


def test_the_shelf_keeps_the_best_and_prefers_the_older_of_equals() -> None:
    pool = Pool(2)
    assert pool.worst == -math.inf
    pool.offer([_finished(0, 2, -4.0, 1.0), _finished(1, 1, -5.0, 1.0)])
    assert [h.node for h in pool.held] == [0, 1]
    pool.offer([_finished(2, 4, -8.0, 1.0)])
    assert [h.node for h in pool.held] == [0, 2]
    pool.offer([_finished(3, 5, -10.0, 1.0)])
    assert [h.node for h in pool.held] == [0, 2]
    assert pool.full
    assert pool.worst == -2.0


def _three_steps(length_penalty: float, last: dict[int, float]) -> Searched:
    """Ends of probability .3 after one token, .315 after two, and what `last` gives of .385 after three."""
    rows: dict[tuple[int, ...], dict[int, float]] = {
        (): {1: 0.7, END: 0.3},
        (1,): {2: 0.55, END: 0.45},
        (1, 2): last,
    }
    return drained(TableBeams(3, rows), Settings(2, 3, length_penalty, "never", (END,)))


def test_the_reason_of_a_finished_loser_says_whether_the_length_penalty_decided() -> None:
    """By its sum .385 beats both on the shelf; times its length (penalty -1) it is behind both."""
    by_sum = _three_steps(0.0, {END: 1.0})
    assert by_sum.sequences == [[1, 2, END], [1, END]]
    (won,) = by_sum.steps[2].candidates
    assert (won.fate, won.reason) == ("finished", "")
    penalised = _three_steps(-1.0, {END: 1.0})
    assert penalised.sequences == [[END], [1, END]]
    (lost,) = penalised.steps[2].candidates
    assert (lost.fate, lost.reason) == ("pruned", "length_penalty")
    for power in (0.0, -1.0):
        behind = _three_steps(power, {END: 0.6, 1: 0.4})
        assert {c.reason for c in behind.steps[2].candidates} == {"finished_pool"}


def test_a_loser_is_not_blamed_on_a_penalty_of_zero() -> None:
    for seed in range(40):
        done = drained(RandomBeams(4, seed), Settings(3, 6, 0.0, "never", (END,)))
        assert not any(c.reason == "length_penalty" for step in done.steps for c in step.candidates)


# --- stopping -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty", "bound"),
    [
        ("false", 1.0, -6.0 / 3),
        ("false", -1.0, -6.0 * 3),
        ("never", 1.0, -6.0 / 10),
        ("never", 0.0, -6.0),
        # Case B2: below 0 a longer text only loses, so the present length is the bound.
        ("never", -1.0, -6.0 * 3),
        ("true", 2.0, -6.0 / 9),
    ],
)
def test_the_bound_is_taken_at_the_right_length(early_stopping: Any, length_penalty: float, bound: float) -> None:
    rule = StopRule(early_stopping, length_penalty, max_new_tokens=10)
    assert rule.bound(-6.0, 3) == pytest.approx(bound)


def test_a_search_stops_only_with_a_full_shelf_and_says_why() -> None:
    pool = Pool(2)
    rules = {name: StopRule(name, 1.0, 10) for name in ("true", "false", "never")}  # type: ignore[arg-type]
    pool.offer([_finished(0, 2, -4.0, 1.0)])
    assert [rule.why_stop(pool, -100.0) for rule in rules.values()] == ["", "", ""]
    pool.offer([_finished(1, 2, -6.0, 1.0)])
    assert rules["true"].why_stop(pool, -1.0) == "there are as many finished texts as beams"
    for name in ("false", "never"):
        assert rules[name].why_stop(pool, -2.9) == ""
        assert "running text" in rules[name].why_stop(pool, -3.0)


def test_the_length_limit_ends_a_search() -> None:
    done = drained(RandomBeams(5, 1), Settings(2, 3))
    assert [s.stop for s in done.steps] == ["", "", "the texts are as long as they may be"]
    assert all(not h.is_end and h.length == 3 for h in done.hypotheses)


# --- settings -----------------------------------------------------------------------------------------------------


def test_the_number_of_candidates_follows_the_end_tokens() -> None:
    assert [Settings(3, 4, end_token_ids=ends).candidates for ends in ((), (1,), (1, 1), (1, 2), (1, 2, 3))] == [
        6,
        6,
        6,
        9,
        12,
    ]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"width": 0}, "width is 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"length_penalty": math.inf}, "length_penalty is inf"),
        ({"repetition": Repetition(min_new_tokens=9)}, "min_new_tokens is 9, above max_new_tokens, 4"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Settings(**{"width": 2, "max_new_tokens": 4, **wrong})
