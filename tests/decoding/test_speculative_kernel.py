"""The accept/reject kernel: exact by enumeration and by draws, replayable, safe where a ratio is 0/0."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from speculative_rounds import (
    Tables,
    distribution,
    first_token,
    kernel_emission,
    outcomes,
    sample_pairs,
    tables,
)
from torch import Tensor

from lab.decoding.drafts.base import Proposal
from lab.decoding.speculative.example import worked_example
from lab.decoding.speculative.greedy import judge_greedy
from lab.decoding.speculative.identity import emitted
from lab.decoding.speculative.kernel import Mistake, draw, judge, residual
from lab.decoding.tree import Tree
from lab.errors import BadInput, ModelError

P, Q = distribution(0.2, 0.5, 0.3), distribution(0.5, 0.3, 0.2)
MISTAKES: tuple[Mistake, ...] = ("no_residual", "wrong_q", "processors_skipped", "top_token_on_rejection")
weights = st.lists(st.sampled_from([0.0, 0.0, 1e-9, 0.1, 0.3, 1.0, 2.0, 7.0]), min_size=5, max_size=5).filter(any)
few = settings(max_examples=40, deadline=None)


def test_worked_example() -> None:
    shown = worked_example()
    assert shown.acceptance == pytest.approx((0.4, 1.0, 1.0), abs=1e-15)
    assert shown.residual == pytest.approx((0.0, 2 / 3, 1 / 3), abs=1e-15)
    assert shown.kept == pytest.approx((0.2, 0.3, 0.2), abs=1e-15)
    assert shown.replaced == pytest.approx((0.0, 0.2, 0.1), abs=1e-15)
    assert shown.total_acceptance == pytest.approx(0.7, abs=1e-15)
    assert shown.alpha == pytest.approx(0.7, abs=1e-15)
    assert shown.total_variation == pytest.approx(0.3, abs=1e-15)
    assert shown.emitted == pytest.approx((0.2, 0.5, 0.3), abs=1e-15)
    assert [a + b for a, b in zip(shown.kept, shown.replaced, strict=True)] == pytest.approx(shown.p, abs=1e-15)


@given(weights, weights)
@few
def test_what_the_kernel_emits_is_p(p: list[float], q: list[float]) -> None:
    wanted = distribution(*p)
    assert float((kernel_emission(wanted, distribution(*q)) - wanted).abs().max()) < 1e-12


@given(weights, weights, weights, st.sampled_from(MISTAKES))
@few
def test_mistakes_emit_what_their_formula_says(
    p: list[float], q: list[float], raw: list[float], mistake: Mistake
) -> None:
    made = kernel_emission(distribution(*p), distribution(*q), mistake, distribution(*raw))
    told = emitted(distribution(*p), distribution(*q), mistake, p_without_processors=distribution(*raw))
    assert float((made - told).abs().max()) < 1e-12


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_leaves_p(mistake: Mistake) -> None:
    made = kernel_emission(P, Q, mistake, distribution(0.4, 0.3, 0.3))
    assert float((made - P).abs().sum()) / 2 > 0.04


def test_the_top_token_at_a_rejection_is_a_quarter_off() -> None:
    p, always_zero = distribution(0.25, 0.5, 0.25), distribution(1, 0, 0)
    made = kernel_emission(p, always_zero, "top_token_on_rejection")
    assert made.tolist() == pytest.approx([0.25, 0.75, 0.0])
    assert float((made - p).abs().sum()) / 2 == pytest.approx(0.25)
    assert kernel_emission(p, always_zero).tolist() == pytest.approx(p.tolist())


def test_one_hot_instead_of_the_q_sampled_from_costs_acceptance_only() -> None:
    made = torch.zeros(3, dtype=torch.float64)
    for token in range(3):
        proposal = Proposal.chain((token,))
        for weight, verdict in outcomes(proposal, torch.stack((P, P))):
            made += float(Q[token]) * weight * first_token(proposal, verdict)
    assert made.tolist() == pytest.approx(P.tolist(), abs=1e-15)


@given(st.permutations(range(5)), st.integers(1, 5), weights)
@few
def test_candidates_of_a_tree_emit_p(order: list[int], count: int, p: list[float]) -> None:
    wanted = distribution(*p)
    proposal = Proposal(tuple(order[:count]), (None,) * count, Tree((-1,) * count))
    made = torch.zeros(5, dtype=torch.float64)
    for weight, verdict in outcomes(proposal, wanted.expand(count + 1, 5)):
        made += weight * first_token(proposal, verdict)
    assert float((made - wanted).abs().max()) < 1e-12


def tree_of_five() -> Proposal:
    """Roots 2 and 0; under 2 the tokens 1 and 2, under 0 the token 3."""
    return Proposal((2, 0, 1, 2, 3), (None,) * 5, Tree((-1, -1, 0, 0, 1)))


def tree_rows(p: Tables) -> Tensor:
    after = [p[1][token] if depth == 0 else p[0] for token, depth in zip((2, 0, 1, 2, 3), (0, 0, 1, 1, 1), strict=True)]
    return torch.stack((p[0], *after))


def test_a_tree_of_two_levels_emits_pairs_of_p() -> None:
    p = tables(3, 4)
    proposal = tree_of_five()
    made = torch.zeros(4, 4, dtype=torch.float64)
    for weight, verdict in outcomes(proposal, tree_rows(p)):
        tokens = [proposal.token_ids[row] for row in verdict.path]
        if not tokens:  # the second token comes from a round of its own
            made += weight * verdict.last_distribution[:, None] * p[1]
        elif len(tokens) == 1:
            made[tokens[0]] += weight * verdict.last_distribution
        else:
            made[tokens[0], tokens[1]] += weight
    assert float((made - p[0][:, None] * p[1]).abs().max()) < 1e-12


def test_candidates_without_renormalising_would_not_emit_p() -> None:
    p = distribution(0.5, 0.3, 0.2)
    stands = [0.5, 0.5 * 0.3, 0.0]  # the second candidate judged by p itself
    rest = 1 - sum(stands)
    assert stands[1] + rest * 0.0 != pytest.approx(float(p[1]))
    proposal = Proposal((0, 1), (None, None), Tree((-1, -1)))
    verdict = judge(proposal, p.expand(3, 3), (0.9, 0.5, 0.0))
    assert verdict.rows[1].accept == pytest.approx(0.6)
    assert verdict.rows[1].p == pytest.approx(0.3)
    assert verdict.path == (1,)


def test_kinds_path_and_last_token_of_a_chain() -> None:
    rows = torch.stack((P, P, P))
    proposal = Proposal.chain((1, 0), (Q, Q))
    rejected = judge(proposal, rows, (0.5, 0.5, 0.99))
    assert [row.kind for row in rejected.rows] == ["accepted", "rejected"]
    assert (rejected.path, rejected.last_kind, rejected.last_token_id) == ((0,), "resampled", 2)
    assert rejected.rows[1].accept == pytest.approx(0.4)
    assert rejected.rows[0].alpha == pytest.approx(0.7)
    assert rejected.rows[0].total_variation == pytest.approx(0.3)
    accepted = judge(proposal, rows, (0.5, 0.3999, 0.1))
    assert (accepted.path, accepted.last_kind, accepted.last_token_id) == ((0, 1), "bonus", 0)
    first = judge(Proposal.chain((0, 1), (Q, Q)), rows, (0.4, 0.0, 0.5))
    assert [row.kind for row in first.rows] == ["rejected", "unjudged"]
    assert math.isnan(first.rows[1].accept)
    assert math.isnan(first.rows[1].alpha)
    assert first.rows[1].p == pytest.approx(0.5)


def test_nothing_proposed_gives_a_bonus_token() -> None:
    verdict = judge(Proposal.chain(()), P[None], (0.69,))
    assert (verdict.rows, verdict.path, verdict.last_kind, verdict.last_token_id) == ((), (), "bonus", 1)


def test_in_a_tree_the_siblings_after_an_accepted_one_are_unjudged() -> None:
    p = tables(3, 4)
    verdict = judge(tree_of_five(), tree_rows(p), (0.0, 0.0, 1.0, 0.0, 0.0, 0.5))
    assert [row.kind for row in verdict.rows] == ["accepted", "unjudged", "rejected", "accepted", "unjudged"]
    assert verdict.path == (0, 3)
    assert verdict.rows[2].alpha == verdict.rows[3].alpha == pytest.approx(float(p[1][2][1] + p[1][2][2]))


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=4, max_size=4), st.integers(0, 2**31))
@few
def test_the_same_uniforms_give_the_same_verdict(us: list[float], seed: int) -> None:
    p, q = tables(seed, 6), tables(seed + 1, 6)
    proposal = Proposal.chain((1, 2, 3), (q[0], q[1][1], q[1][2]))
    rows = torch.stack((p[0], p[1][1], p[1][2], p[1][3]))
    one, two = judge(proposal, rows, us), judge(proposal, rows, us)
    assert (str(one.rows), one.path, one.last_token_id, str(one.last_u)) == (
        str(two.rows),
        two.path,
        two.last_token_id,
        str(two.last_u),
    )
    for row, u in zip(one.rows, us[:3], strict=True):
        if row.kind != "unjudged":
            assert (row.kind == "accepted") == (row.accept >= 1 or u < row.accept)
            assert row.accept == pytest.approx(min(1.0, row.p / row.q))


def test_greedy_reads_no_uniforms() -> None:
    rows = torch.eye(4)[[2, 1, 3]]
    right = judge(Proposal.chain((2, 1)), rows, ())
    assert (right.path, right.last_token_id, right.last_kind) == ((0, 1), 3, "bonus")
    assert all(math.isnan(row.u) for row in right.rows)
    assert math.isnan(right.last_u)
    wrong = judge(Proposal.chain((0, 1), (torch.full((4,), 0.25), None)), rows, (math.nan,) * 3)
    assert (wrong.path, wrong.last_token_id, wrong.last_kind) == ((), 2, "resampled")
    assert wrong.rows[0].alpha == pytest.approx(0.25)


@given(st.integers(0, 2**31), st.lists(st.integers(0, 2), min_size=6, max_size=6))
@few
def test_greedy_without_distributions_gives_the_same_verdict(seed: int, choices: list[int]) -> None:
    generator = np.random.default_rng(seed)
    parents = tuple(int(generator.integers(-1, row)) if row else -1 for row in range(5))
    tokens: list[int] = []
    for row, parent in enumerate(parents):  # siblings are distinct; a fourth child would repeat
        used = [tokens[i] for i in range(row) if parents[i] == parent]
        tokens.append(next((t for t in generator.permutation(3).tolist() if t not in used), 3 + row))
    proposal = Proposal(tuple(tokens), (None,) * 5, Tree(parents))
    rows = torch.eye(8)[choices]
    one, two = judge(proposal, rows, ()), judge_greedy(proposal, choices, rows)
    assert (one.path, one.last_token_id, one.last_kind) == (two.path, two.last_token_id, two.last_kind)
    assert str(one.rows) == str(two.rows)


def test_a_distribution_that_rounds_to_one_hot_is_still_drawn_from() -> None:
    almost = torch.tensor([1.0, 1e-30, 0.0])
    verdict = judge(Proposal.chain((0,), (torch.tensor([0.5, 0.5, 0.0]),)), almost.expand(2, 3), (0.5, 0.5))
    assert verdict.rows[0].u == 0.5
    assert verdict.last_u == 0.5


def test_equal_distributions_never_reject_and_never_divide_by_zero() -> None:
    assert torch.equal(residual(P, P, 0), P)
    slightly_more = P + 1e-18  # p - q is 0 or below everywhere
    assert torch.equal(residual(P, slightly_more * (1 + 1e-15), 1), P)
    verdict = judge(Proposal.chain((0,), (P,)), torch.stack((P, P)), (0.999999, 0.5))
    assert verdict.path == (0,)
    unguarded = (P - P).clamp(min=0) / (P - P).clamp(min=0).sum()
    assert bool(unguarded.isnan().all()), "what the fall-back is for"


def test_a_token_the_target_rules_out_is_never_accepted() -> None:
    p, q = distribution(0.0, 1.0, 1.0), distribution(0.0, 0.5, 0.5)
    verdict = judge(Proposal.chain((0,), (q,)), torch.stack((p, p)), (0.0, 0.0))  # 0/0
    assert (verdict.rows[0].kind, verdict.rows[0].accept, verdict.last_token_id) == ("rejected", 0.0, 1)
    wanted = distribution(0.5, 0.5, 0.0)
    assert judge(Proposal.chain((0,), (q,)), torch.stack((wanted, wanted)), (0.9, 0.0)).path == (0,)  # x/0


@given(weights, st.floats(0, 1))
@few
def test_draw_inverts_the_distribution_function(p: list[float], u: float) -> None:
    token = draw(distribution(*p), u)
    cumulated = [0.0, *distribution(*p).cumsum(0).tolist()]
    assert p[token] > 0
    assert cumulated[token] - 1e-12 <= u <= cumulated[token + 1] + 1e-12


def test_draw_at_the_ends() -> None:
    p = distribution(0, 0, 3, 1, 0, 0)
    assert (draw(p, 0.0), draw(p, 0.75 - 1e-12), draw(p, 0.75), draw(p, 1.0)) == (2, 2, 3, 3)
    assert draw(p.float(), math.nextafter(1.0, 0.0)) == 3
    bounds = [draw(torch.full((1000,), 0.001), u) for u in np.linspace(0, 1, 501)]
    assert all(a <= b for a, b in pairwise(bounds))
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(BadInput, match="u is"):
            draw(p, bad)
    for broken in (torch.zeros(3), torch.tensor([0.5, math.nan])):
        with pytest.raises(BadInput, match="sums to"):
            draw(broken, 0.5)


def test_what_does_not_fit_is_refused() -> None:
    two = torch.stack((P, P))
    chain = Proposal.chain((0,), (Q,))
    with pytest.raises(BadInput, match="need 2 rows"):
        judge(chain, P[None], (0.5, 0.5))
    with pytest.raises(BadInput, match="number 2 is needed"):
        judge(chain, two, (0.1,))
    with pytest.raises(BadInput, match=r"is 1\.5"):
        judge(chain, two, (1.5, 0.5))
    with pytest.raises(BadInput, match="outside the vocabulary"):
        judge(Proposal.chain((3,)), two, (0.5, 0.5))
    with pytest.raises(BadInput, match="Pad q"):
        judge(Proposal.chain((0,), (Q[:2],)), two, (0.5, 0.5))
    with pytest.raises(BadInput, match="unknown"):
        judge(chain, two, (0.5, 0.5), mistake="other")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="p_without_processors"):
        judge(chain, two, (0.5, 0.5), mistake="processors_skipped")
    with pytest.raises(ValueError, match="siblings"):
        judge(Proposal((0, 1), (Q, Q), Tree((-1, -1))), torch.stack((P, P, P)), (0.5, 0.5, 0.5))
    with pytest.raises(ModelError, match="NaN"):
        judge(chain, two * math.nan, (0.5, 0.5))
    with pytest.raises(ModelError, match="draft"):
        judge(Proposal.chain((0,), (Q * math.nan,)), two, (0.5, 0.5))


def tilted(p: Tables, temperature: float, top_k: int = 0) -> Tables:
    """A draft's tables at another temperature, or cut to its top tokens."""

    def tilt(row: Tensor) -> Tensor:
        logits = row.log() / temperature
        if top_k:
            logits = logits.masked_fill(logits < logits.topk(top_k).values[..., -1:], -math.inf)
        return logits.softmax(-1)

    return tilt(p[0]), tilt(p[1])


RUNS = 20_000
TARGET, DRAFT = tables(1, 6), tables(2, 6)


def p_value(counts: np.ndarray, p: Tables) -> float:
    expected = (p[0][:, None] * p[1]).numpy().ravel() * counts.sum()
    assert expected.min() > 5
    return float(chisquare(counts.ravel(), expected).pvalue)


@pytest.mark.parametrize(
    "draft", [DRAFT, tilted(TARGET, 0.7), tilted(DRAFT, 0.7, top_k=2), tilted(DRAFT, 1.0, top_k=1)]
)
def test_pairs_follow_p_whatever_the_draft(draft: Tables) -> None:
    runs = RUNS if draft is DRAFT else RUNS // 5
    assert p_value(sample_pairs(TARGET, draft, runs, seed=11), TARGET) > 1e-3


def test_the_draft_itself_fails_the_same_test() -> None:
    rng = np.random.default_rng(0)
    pairs = (DRAFT[0][:, None] * DRAFT[1]).numpy()
    assert p_value(rng.multinomial(RUNS, pairs.ravel()), TARGET) < 1e-6


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_fails_the_same_test(mistake: Mistake) -> None:
    counts = sample_pairs(TARGET, DRAFT, RUNS // 10, seed=11, mistake=mistake, raw=tilted(TARGET, 2.0))
    assert p_value(counts, TARGET) < 1e-6


def test_pairs_of_a_tree_follow_p() -> None:
    assert p_value(sample_pairs(TARGET, DRAFT, RUNS // 3, seed=5, tree=True), TARGET) > 1e-3
    wrong = sample_pairs(TARGET, DRAFT, RUNS // 10, seed=5, tree=True, mistake="top_token_on_rejection")
    assert p_value(wrong, TARGET) < 1e-6
