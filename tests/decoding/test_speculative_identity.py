"""The analytic identity: what the rule emits is p, and what each mistake emits is not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from speculative_rounds import distribution
from torch import Tensor

from lab.decoding.speculative.identity import (
    alpha,
    emitted,
    emitted_by_candidates,
    largest_difference,
    total_variation,
)
from lab.decoding.speculative.kernel import Mistake
from lab.errors import BadInput

VOCAB = 8
few = settings(max_examples=100, deadline=None)
weights = st.lists(st.sampled_from([0.0, 0.0, 1e-12, 0.1, 0.3, 1.0, 2.0, 7.0]), min_size=VOCAB, max_size=VOCAB).filter(
    any
)
MISTAKES: tuple[Mistake, ...] = ("no_residual", "wrong_q", "processors_skipped", "top_token_on_rejection")


def random(seed: int, vocab: int = VOCAB, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(vocab, generator=generator, dtype=torch.float64)).softmax(-1)


def one_hot(token: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(token), VOCAB).double()


NAMED = {
    "random": (random(0), random(1)),
    "equal": (random(0), random(0)),
    "disjoint": (distribution(1, 2, 3, 0, 0, 0, 0, 0), distribution(0, 0, 0, 0, 5, 4, 3, 2)),
    "one-hot q": (random(0), one_hot(3)),
    "one-hot p": (one_hot(3), random(1)),
    "both one-hot, equal": (one_hot(3), one_hot(3)),
    "both one-hot, different": (one_hot(3), one_hot(4)),
    "q covers less": (random(0), distribution(0, 1, 0, 2, 0, 1, 0, 0)),
    "p covers less": (distribution(0, 1, 0, 2, 0, 1, 0, 0), random(0)),
}


@pytest.mark.parametrize("pair", NAMED.values(), ids=NAMED.keys())
def test_identity_of_named_pairs(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    assert largest_difference(p, emitted(p, q)) < 1e-12
    assert alpha(p, q) == pytest.approx(1 - total_variation(p, q), abs=1e-12)


@given(weights, weights)
@few
def test_identity(p: list[float], q: list[float]) -> None:
    one, two = distribution(*p), distribution(*q)
    out = emitted(one, two)
    assert largest_difference(one, out) < 1e-12
    assert float(out.sum()) == pytest.approx(1, abs=1e-12)
    assert alpha(one, two) == pytest.approx(1 - total_variation(one, two), abs=1e-12)
    assert alpha(one, two) == alpha(two, one)


def test_identity_over_a_whole_vocabulary_in_fp32() -> None:
    p, q = random(5, 49_152).float(), random(6, 49_152).float()
    assert largest_difference(p, emitted(p, q)) < 1e-12
    assert largest_difference(p, emitted(p, q, "no_residual")) > 1e-6


@given(weights, weights, weights, st.sampled_from(MISTAKES))
@few
def test_a_mistake_still_emits_a_distribution(
    p: list[float], q: list[float], raw: list[float], mistake: Mistake
) -> None:
    out = emitted(distribution(*p), distribution(*q), mistake, p_without_processors=distribution(*raw))
    assert float(out.min()) >= 0
    assert float(out.sum()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_breaks_the_identity(mistake: Mistake) -> None:
    p, q = random(0), random(1)
    assert total_variation(p, q) > 0.3
    out = emitted(p, q, mistake, p_without_processors=random(0, spread=1.0))
    assert total_variation(p, out) > 0.03
    assert total_variation(q, out) > 0.03, "it does not emit the draft's distribution either"


def test_mistakes_in_closed_form() -> None:
    p, q = distribution(0.2, 0.5, 0.3), distribution(0.5, 0.3, 0.2)
    kept = torch.minimum(p, q)
    assert torch.allclose(emitted(p, q, "no_residual"), kept + 0.3 * p)
    assert torch.allclose(emitted(p, q, "top_token_on_rejection"), distribution(0.2, 0.6, 0.2))
    raw = distribution(0.6, 0.3, 0.1)
    assert torch.allclose(
        emitted(p, q, "processors_skipped", p_without_processors=raw), kept + 0.3 * distribution(1, 0, 0)
    )
    root = q.sqrt() / q.sqrt().sum()
    stands = q * torch.minimum(torch.ones(3, dtype=torch.float64), p / root)
    over = (p - root).clamp(min=0)
    assert torch.allclose(emitted(p, q, "wrong_q"), stands + (1 - stands.sum()) * over / over.sum())
    assert torch.allclose(emitted(p, q, "cache_not_cropped"), p), "this one spoils the positions after it"


def test_a_look_up_treated_as_uniform_is_wrong() -> None:
    p = distribution(0.4, 0.3, 0.2, 0.1)
    out = emitted(p, distribution(0, 0, 1, 0), "wrong_q")
    # p(2) = 0.2 against 1/4: accepted with 0.8, four times what look-up must
    assert float(out[2]) == pytest.approx(0.8)
    assert float(emitted(p, distribution(0, 0, 1, 0))[2]) == pytest.approx(0.2)


def test_the_top_token_at_a_rejection_is_a_quarter_off() -> None:
    p, q = distribution(0.25, 0.5, 0.25), distribution(1, 0, 0)
    assert total_variation(p, emitted(p, q, "top_token_on_rejection")) == pytest.approx(0.25)
    assert total_variation(p, emitted(p, q)) < 1e-15


@given(weights, st.permutations(range(VOCAB)), st.integers(0, VOCAB))
@few
def test_candidates_emit_p(p: list[float], order: list[int], count: int) -> None:
    wanted = distribution(*p)
    assert largest_difference(wanted, emitted_by_candidates(wanted, order[:count])) < 1e-12


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_breaks_the_identity_of_candidates(mistake: Mistake) -> None:
    p = distribution(0.1, 0.2, 0.3, 0.4)
    out = emitted_by_candidates(p, (1, 0), mistake, p_without_processors=distribution(4, 3, 2, 1))
    assert float(out.sum()) == pytest.approx(1)
    assert total_variation(p, out) > 0.03


def test_one_candidate_is_a_one_hot_q() -> None:
    p = random(4)
    for mistake in ("nothing", *MISTAKES):
        one = emitted(p, one_hot(2), mistake, p_without_processors=random(7))
        two = emitted_by_candidates(p, (2,), mistake, p_without_processors=random(7))
        assert largest_difference(one, two) < 1e-12


def test_what_does_not_fit_is_refused() -> None:
    p = random(0)
    with pytest.raises(BadInput, match="over one vocabulary"):
        emitted(p, p[:4])
    with pytest.raises(BadInput, match="p_without_processors"):
        emitted(p, p, "processors_skipped")
    with pytest.raises(BadInput, match="distinct"):
        emitted_by_candidates(p, (1, 1))
    with pytest.raises(BadInput, match="sums to"):
        emitted(p * float("nan"), p)
