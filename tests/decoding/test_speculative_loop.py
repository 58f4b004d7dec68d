"""The speculative loop against plain decoding and `generate()`: tokens, ends, lengths, caches, mistakes, manners."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from speculative_runs import Chain, Fixed, always_wrong, drain, forked, generated, oracle, speculated
from tiny_models import VOCAB

from lab.decoding import cache_layout
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.early_exit import EarlyExitDraft
from lab.decoding.drafts.lookup import LookupDraft
from lab.decoding.processors import Repetition
from lab.decoding.sampling import Sampling
from lab.decoding.speculative.loop import First, Round, plain, speculate
from lab.decoding.speculative.observed import RuleCheck
from lab.errors import BadInput

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PROMPT = [5, 9, 33, 70, 101, 17, 5, 9]
KINDS = ("llama", "gpt2", "qwen2", "qwen3", "gemma2", "gemma3", "mistral", "mixtral")
SAMPLED = Distribution(Sampling(do_sample=True, temperature=0.9, top_k=40))


@pytest.mark.parametrize("gamma", range(1, 9))
def test_greedy_tokens_equal_generate(tiny: Tiny, gamma: int) -> None:
    model, other = tiny("llama").model, tiny("llama", seed=5).model
    text = [*PROMPT, *generated(model, PROMPT, 40)]
    for new in sorted({1, 2, gamma, gamma + 1, 33}):
        expected = generated(model, PROMPT, new)
        options = {"max_new_tokens": new, "gamma": gamma}
        own = Chain(model)
        for draft in (own, Chain(other), oracle(text), LookupDraft(3), EarlyExitDraft(1)):
            rounds, tokens = speculated(model, PROMPT, draft, **options)
            assert tokens == expected, draft.name
            assert sum(len(r.token_ids) for r in rounds) == new - 1
            if draft is own:  # draft = target: all is accepted
                assert all(row.kind == "accepted" for r in rounds for row in r.verdict.rows)
        # a draft that is always wrong: one token a round
        rounds, tokens = speculated(model, PROMPT, always_wrong(text, VOCAB), **options)
        assert tokens == expected
        assert [len(r.token_ids) for r in rounds] == [1] * (new - 1)
        assert all(row.kind != "accepted" for r in rounds for row in r.verdict.rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", [PROMPT[:1], PROMPT, [(3 + 7 * i) % 300 for i in range(19)]])
def test_every_kind_of_model_and_prompt(tiny: Tiny, kind: str, prompt: list[int]) -> None:
    model = tiny(kind).model
    expected = generated(model, prompt, 20)
    text = [*prompt, *expected]
    for gamma in (1, 3, 5):
        # Right now and then: proposals of which a part stands, across the border of the window of 8.
        mixed = Fixed(lambda ids, count: [t if i % 3 else (t + 1) % VOCAB for i, t in _ahead(text, ids, count)])
        rounds, tokens = speculated(model, prompt, mixed, max_new_tokens=20, gamma=gamma)
        assert tokens == expected
        assert any(r.path and len(r.path) < len(r.proposal.token_ids) for r in rounds) or gamma == 1
        rounds, tokens = speculated(model, prompt, always_wrong(text, VOCAB), max_new_tokens=20, gamma=gamma)
        assert tokens == expected


def _ahead(text: list[int], ids: list[int], count: int) -> list[tuple[int, int]]:
    return list(enumerate(text))[len(ids) : len(ids) + count]


def test_a_tree_takes_the_right_branch(tiny: Tiny) -> None:
    model = tiny("llama").model
    expected = generated(model, PROMPT, 22)
    rounds, tokens = speculated(model, PROMPT, forked([*PROMPT, *expected], VOCAB), max_new_tokens=22, gamma=4)
    assert tokens == expected
    assert (1, 3) in {r.path for r in rounds}
    verdict = next(r for r in rounds if r.path == (1, 3)).verdict
    assert [row.kind for row in verdict.rows] == ["rejected", "accepted", "rejected", "accepted"]
    fork = forked([*PROMPT, *expected], VOCAB)
    _, drawn = speculated(model, PROMPT, fork, max_new_tokens=22, gamma=4, distribution=SAMPLED)
    assert len(drawn) == 22


@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_an_end_token_inside_a_block_ends_the_text(tiny: Tiny, place: int) -> None:
    model = tiny("llama").model
    greedy = generated(model, PROMPT, 30)
    # The place in the block counts from the first token after the prefill's own.
    end = greedy[place]
    expected = greedy[: greedy.index(end) + 1]
    draft = oracle([*PROMPT, *greedy])
    items, ended = drain(speculate(model, PROMPT, draft, max_new_tokens=30, end_token_ids=(end,), gamma=4))
    assert ended.token_ids == expected
    rounds = [item for item in items if isinstance(item, Round)]
    if rounds:
        last = rounds[-1]
        assert last.ends
        assert last.token_ids[-1] == end
        assert last.last_stands == (len(last.token_ids) > 4)
        below = last.verdict.rows[len(last.path) :]
        assert all(row.kind == "unjudged" for row in below)
    # Both caches are cropped: all of the text but its last token.
    assert set(cache_layout.stored_lengths(ended.cache)) == {len(PROMPT) + len(expected) - 1}


@pytest.mark.parametrize("new", [1, 2, 3, 4, 7])
def test_look_up_never_passes_the_wanted_length(tiny: Tiny, new: int) -> None:
    model = tiny("llama").model
    prompt = [7, 8, 9] * 3
    rounds, tokens = speculated(model, prompt, LookupDraft(3), max_new_tokens=new, gamma=8)
    assert len(tokens) == new
    assert tokens == generated(model, prompt, new)
    assert all(len(r.proposal.token_ids) < new for r in rounds)


def test_a_prompt_of_one_token_and_no_end_tokens(tiny: Tiny) -> None:
    model = tiny("llama").model
    rounds, tokens = speculated(model, [11], LookupDraft(3), max_new_tokens=6, end_token_ids=(), gamma=4)
    assert tokens == generated(model, [11], 6)
    assert not rounds[0].proposal.token_ids
    assert rounds[0].verdict.last_kind == "bonus"


@pytest.mark.parametrize("greedy", [True, False])
def test_processors_see_each_proposed_prefix(tiny: Tiny, greedy: bool) -> None:
    model = tiny("llama").model
    rules = Distribution(
        Sampling() if greedy else Sampling(do_sample=True, temperature=0.7, top_p=0.9),
        Repetition(repetition_penalty=1.4, no_repeat_ngram_size=2, min_new_tokens=3),
    )
    options: dict[str, Any] = {"max_new_tokens": 24, "end_token_ids": (2,), "distribution": rules, "seed": 3}
    rounds, tokens = speculated(model, PROMPT, Chain(model), gamma=4, **options)
    # The same rules on both sides and the same model: all is accepted, but where the last digit decides.
    judged = [row for r in rounds for row in r.verdict.rows if row.kind != "unjudged"]
    assert sum(row.kind == "accepted" for row in judged) >= len(judged) - 1
    assert all(abs(row.alpha - 1) < 1e-3 for row in judged)
    if greedy:
        expected = generated(
            model, PROMPT, 24, repetition_penalty=1.4, no_repeat_ngram_size=2, min_new_tokens=3, eos_token_id=2
        )
        assert tokens == expected
        assert tokens == drain(plain(model, PROMPT, **options))[1]  # type: ignore[arg-type]
    # The mutation: a draft that does not know the rules is rejected often.
    unruly = Chain(model)
    propose = unruly.propose
    unruly.propose = lambda sight, count, _: propose(sight, count, Distribution(rules.sampling))  # type: ignore[method-assign]
    rounds, again = speculated(model, PROMPT, unruly, gamma=4, **options)
    assert any(row.kind == "rejected" for r in rounds for row in r.verdict.rows)
    assert not greedy or again == tokens


def test_the_p_that_are_used_are_the_models_own(tiny: Tiny) -> None:
    model = tiny("llama").model
    other = tiny("llama", seed=5).model
    rounds, tokens = speculated(model, PROMPT, Chain(other), max_new_tokens=20, gamma=3, distribution=SAMPLED, seed=1)
    text = [*PROMPT, *tokens]
    with torch.inference_mode():
        logits = model(torch.tensor([text]), use_cache=False).logits[0]
    at = len(PROMPT)  # of the token after the text so far; the prefill's own is the first
    check = RuleCheck()
    for done in rounds:
        assert done.p is not None
        for row, place in zip((0, *(i + 1 for i in done.path)), range(at, at + 9), strict=False):
            expected = SAMPLED.of(logits[place], text[: place + 1])
            torch.testing.assert_close(done.p[row], expected, atol=1e-5, rtol=0)
        check.take(done, at - len(PROMPT))
        at += len(done.token_ids)
    assert not check.faults
    assert check.identity < 1e-12
    assert check.rejections > 0


@pytest.mark.parametrize("mistake", ["no_residual", "wrong_q", "processors_skipped", "top_token_on_rejection"])
def test_each_mistake_of_the_rule_is_seen(tiny: Tiny, mistake: Any) -> None:
    model, other = tiny("llama").model, tiny("llama", seed=5).model
    check = RuleCheck()
    rounds, _ = speculated(
        model, PROMPT, Chain(other), max_new_tokens=30, gamma=3, distribution=SAMPLED, mistake=mistake
    )
    for done in rounds:
        check.take(done, 0)
    assert check.faults
    assert max(check.acceptance, check.replacement) > 1e-2
    assert check.identity < 1e-12  # the rule is right; what was used is not


def test_a_cache_that_is_not_cropped_shows_in_its_length_and_its_tokens(tiny: Tiny) -> None:
    model = tiny("llama").model
    expected = generated(model, PROMPT, 24)
    wrong = always_wrong([*PROMPT, *expected], VOCAB)
    rounds, tokens = speculated(model, PROMPT, wrong, max_new_tokens=24, gamma=3, mistake="cache_not_cropped")
    assert tokens != expected
    assert all(r.target_positions[2] - r.target_positions[0] == 1 + len(r.proposal.token_ids) for r in rounds)
    rounds, _ = speculated(model, PROMPT, wrong, max_new_tokens=24, gamma=3)
    assert all(r.target_positions[2] - r.target_positions[0] == len(r.token_ids) for r in rounds)


def test_rounds_say_what_they_did(tiny: Tiny) -> None:
    model = tiny("llama").model
    items, end = drain(speculate(model, PROMPT, EarlyExitDraft(1), max_new_tokens=16, gamma=3, distribution=SAMPLED))
    (first,) = [item for item in items if isinstance(item, First)]
    assert first.distribution is not None
    assert first.p == float(first.distribution[first.token_id])
    length = len(PROMPT)
    for done in (item for item in items if isinstance(item, Round)):
        proposed = len(done.proposal.token_ids)
        assert done.target_positions == (length, length + 1 + proposed, length + len(done.token_ids))
        length += len(done.token_ids)
        per_position = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, head_dim, bytes
        assert done.target_bytes == length * per_position
        assert len(done.bars) == proposed + 1
        for bars in (b for b in done.bars if b is not None):
            assert 0.9 < sum(bars.p) <= 1 + 1e-5
        judged = [b for b, row in zip(done.bars, done.verdict.rows, strict=False) if row.kind != "unjudged"]
        assert all(bars is not None and 0.9 < sum(bars.q) <= 1 + 1e-5 for bars in judged)
        if done.verdict.last_kind == "resampled":
            assert done.bars[-1] is not None
            assert 0.9 < sum(done.bars[-1].residual) <= 1 + 1e-4
    assert length == len(PROMPT) + len(end.token_ids) - 1


def test_nothing_recorded_gives_the_same_tokens(tiny: Tiny) -> None:
    model = tiny("llama").model
    options: dict[str, Any] = {"max_new_tokens": 24, "gamma": 4, "distribution": SAMPLED, "seed": 9}
    full, tokens = speculated(model, PROMPT, EarlyExitDraft(1), **options)
    off, same = speculated(model, PROMPT, EarlyExitDraft(1), trace="off", **options)
    assert same == tokens
    assert all(r.p is None and not r.bars for r in off)
    assert speculated(model, PROMPT, EarlyExitDraft(1), **{**options, "seed": 10})[1] != tokens
    assert len(full) == len(off)


def test_adaptive_asks_for_more_after_success(tiny: Tiny) -> None:
    model = tiny("llama").model
    text = [*PROMPT, *generated(model, PROMPT, 40)]
    rounds, _ = speculated(model, PROMPT, oracle(text), max_new_tokens=40, gamma=2, adaptive=True)
    assert [r.gamma for r in rounds[:3]] == [2, 4, 6]
    rounds, _ = speculated(model, PROMPT, always_wrong(text, VOCAB), max_new_tokens=10, gamma=3, adaptive=True)
    assert [r.gamma for r in rounds[:4]] == [3, 2, 1, 1]


def test_two_runs_interleaved_equal_each_alone_and_leak_no_mode(tiny: Tiny) -> None:
    model = tiny("llama").model

    def start(seed: int) -> Any:
        return speculate(
            model, PROMPT[seed:], EarlyExitDraft(1), max_new_tokens=14, gamma=3, distribution=SAMPLED, seed=seed
        )

    alone = [drain(start(seed))[1].token_ids for seed in (0, 1)]
    runs, ends = [start(0), start(1)], [None, None]
    while None in ends:
        for i, run in enumerate(runs):
            if ends[i] is None:
                try:
                    next(run)
                except StopIteration as stop:
                    ends[i] = stop.value.token_ids
                assert not torch.is_inference_mode_enabled()
                assert torch.is_grad_enabled()
    assert ends == alone


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_draft_that_fails_leaves_the_model_as_it_was(tiny: Tiny, kind: str) -> None:
    model = tiny(kind).model
    before = generated(model, PROMPT, 8)

    def fail(ids: list[int], count: int) -> list[int]:
        if len(ids) > len(PROMPT) + 3:
            raise RuntimeError("the draft broke")
        return [1] * count

    with pytest.raises(RuntimeError, match="the draft broke"):
        drain(speculate(model, PROMPT, Fixed(fail), max_new_tokens=12))
    assert not torch.is_inference_mode_enabled()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert generated(model, PROMPT, 8) == before


def test_what_cannot_be_is_refused(tiny: Tiny) -> None:
    model = tiny("llama").model
    for options, words in (
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"max_new_tokens": 4, "gamma": 0}, "gamma is 0"),
        ({"max_new_tokens": 4, "gamma": 65}, "gamma is 65"),
        ({"max_new_tokens": 600}, "context of 512"),
        ({"max_new_tokens": 4, "mistake": "all"}, "mistake 'all'"),
    ):
        with pytest.raises(BadInput, match=words):
            drain(speculate(model, PROMPT, LookupDraft(2), **options))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no tokens"):
        drain(speculate(model, [], LookupDraft(2), max_new_tokens=4))
    with pytest.raises(ValueError, match="proposed 9 tokens; 3 were asked for"):
        drain(speculate(model, PROMPT, Fixed(lambda *_: [1] * 9), max_new_tokens=8))
