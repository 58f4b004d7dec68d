"""Beam search beside `generate(num_beams=...)`, beside every possible text, and beside itself without a cache."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from beam_runs import END, Searched, WithoutCache, drained, generated, same, searched, small_llama

from lab.decoding import cache_layout
from lab.decoding.beam import hypotheses, search
from lab.decoding.beam.choose import choose_beams
from lab.decoding.beam.follow import follow
from lab.decoding.beam.search import Settings
from lab.decoding.loop import decode
from lab.decoding.processors import Repetition
from lab.decoding.sampling import Sampling
from lab.errors import ModelError

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
RULES: tuple[Any, ...] = ("true", "false", "never")
POWERS = (-1.0, 0.0, 1.0, 2.0)
KINDS = ("llama", "gpt2", "qwen3", "gemma3", "mistral")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    """Tiny products gain nothing from a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def llamas() -> dict[int, Any]:
    """Tiny Llamas by vocabulary, each with an end token (2) that comes up, sooner with one rule than with another."""
    return {vocab: small_llama(vocab, seed) for vocab, seed in ((5, 3), (11, 35), (50, 30))}


# --- generate() ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early_stopping", RULES)
@pytest.mark.parametrize("length_penalty", POWERS)
def test_sequences_and_scores_are_those_of_generate(
    llamas: dict[int, Any], length_penalty: float, early_stopping: Any
) -> None:
    """Case B2 among them: below 0 the bound of "never" is not the greatest length's."""
    for (vocab, model), width in itertools.product(llamas.items(), (2, 4)):
        settings = Settings(width, 9, length_penalty, early_stopping, (END,))
        ours, theirs = searched(model, settings), generated(model, settings)
        assert same(ours, theirs), (vocab, width, ours.sequences, theirs.sequences, ours.scores, theirs.scores)


def test_the_grid_is_not_empty_talk(llamas: dict[int, Any]) -> None:
    """In it, searches end early and late, by an end token and by the limit, and each setting changes a result."""
    found = {
        (vocab, power, rule): searched(model, Settings(4, 9, power, rule, (END,)))
        for vocab, model in llamas.items()
        for power in POWERS
        for rule in RULES
    }
    every = list(found.values())
    assert {len(s.steps) == 9 for s in every} == {True, False}
    assert {h.is_end for s in every for h in s.hypotheses} == {True, False}
    reasons = {c.reason for s in every for step in s.steps for c in step.candidates}
    assert reasons == {"", "rank", "finished_pool", "not_a_hypothesis", "length_penalty"}
    for vocab in llamas:
        assert len({str(found[vocab, power, "never"].sequences) for power in POWERS}) > 1
    assert any(
        len({len(found[vocab, power, rule].steps) for rule in RULES}) > 1 for vocab in llamas for power in POWERS
    )


@pytest.mark.parametrize(("width", "early_stopping"), list(itertools.product((1, 3, 8, 16), ("false", "never"))))
def test_any_width_even_above_the_vocabulary(llamas: dict[int, Any], width: int, early_stopping: Any) -> None:
    for vocab in (5, 50):
        settings = Settings(width, 6, 1.0, early_stopping, (END,))
        ours, theirs = searched(llamas[vocab], settings), generated(llamas[vocab], settings)
        assert same(ours, theirs), (vocab, ours.sequences, theirs.sequences)


def test_edges_are_the_transition_scores(llamas: dict[int, Any]) -> None:
    """Case B5: they sum to the score times n ** length_penalty."""
    for power in (1.0, 2.0):
        settings = Settings(4, 9, power, "false", (END,))
        ours, theirs = searched(llamas[50], settings), generated(llamas[50], settings)
        assert ours.sequences == theirs.sequences
        for hypothesis, steps in zip(ours.hypotheses, theirs.transitions, strict=True):
            edges = [ours.tree.log_probs[node] for node in ours.tree.path(hypothesis.node)]
            assert edges == pytest.approx(steps, abs=1e-4)
            assert math.fsum(edges) == pytest.approx(hypothesis.score * len(edges) ** power, rel=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(3, 8, 1.0, "false", (2, 7)),
        Settings(4, 8, 1.0, "never", (2, 7, 9, 0)),
        Settings(4, 8, 0.0, "true", (2, 7, 9)),
        Settings(3, 8, 1.0, "false", ()),
        Settings(3, 8, 1.0, "false", (2,), Repetition(min_new_tokens=5)),
        Settings(3, 8, 0.0, "never", (2, 7), Repetition(min_new_tokens=8)),
        Settings(3, 8, 1.0, "false", (2,), Repetition(repetition_penalty=1.4)),
        Settings(3, 8, 1.0, "false", (2,), Repetition(repetition_penalty=0.6)),
        Settings(3, 12, 1.0, "false", (2,), Repetition(no_repeat_ngram_size=2)),
        Settings(4, 10, 1.0, "never", (2, 7), Repetition(1.2, 1, 3)),
        Settings(2, 1, 1.0, "false", (2,)),
    ],
)
def test_end_tokens_lengths_and_processors(llamas: dict[int, Any], settings: Settings) -> None:
    for vocab in (11, 50):
        prompt = [1, 3, 4, 3, 1, 3]
        ours, theirs = searched(llamas[vocab], settings, prompt), generated(llamas[vocab], settings, prompt)
        assert same(ours, theirs), (vocab, ours.sequences, theirs.sequences, ours.scores, theirs.scores)
        assert all(h.length >= settings.repetition.min_new_tokens for h in ours.hypotheses)


# --- mutations: each must be seen ----------------------------------------------------------------------------------


def _all_same(llamas: dict[int, Any], **more: Any) -> bool:
    """Whether a small grid is `generate()`'s; the mutations below must make it false."""
    for vocab, power, rule in itertools.product((11, 50), (-1.0, 1.0), ("false", "never")):
        wrong = Settings(3, 8, power, rule, (END,), **more)  # type: ignore[arg-type]
        right = Settings(3, 8, power, rule, (END,), wrong.repetition)  # type: ignore[arg-type]
        prompt = [1, 3, 4, 3, 1, 3]
        if not same(searched(llamas[vocab], wrong, prompt), generated(llamas[vocab], right, prompt)):
            return False
    return True


def test_without_a_mutation_all_is_the_same(llamas: dict[int, Any]) -> None:
    assert _all_same(llamas)
    assert _all_same(llamas, repetition=Repetition(1.3, 2))


@pytest.mark.parametrize("mistake", ["cache_not_reordered", "count_prompt_in_length", "drop_end_token"])
def test_each_deliberate_mistake_is_seen(llamas: dict[int, Any], mistake: Any) -> None:
    assert not _all_same(llamas, mistake=mistake)


def test_that_all_candidates_may_finish_is_seen(llamas: dict[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "may_finish", property(lambda self: self.candidates))
    assert not _all_same(llamas)


def test_a_bound_at_the_greatest_length_below_zero_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case B2: with a negative penalty that "bound" is far too low, and the search stops too soon."""

    def wrong(self: Any, best_sum: float, length: int) -> float:
        del length
        return hypotheses.final_score(best_sum, self.max_new_tokens, self.length_penalty)

    cases = [(small_llama(5, seed), Settings(4, 9, -1.0, "never", (END,))) for seed in (9, 24, 29)]
    expected = [generated(model, settings) for model, settings in cases]
    assert all(same(searched(*case), theirs) for case, theirs in zip(cases, expected, strict=True))
    monkeypatch.setattr(hypotheses.StopRule, "bound", wrong)
    assert not any(same(searched(*case), theirs) for case, theirs in zip(cases, expected, strict=True))


@pytest.mark.parametrize("times", [1, 2])
def test_too_few_candidates_for_several_end_tokens_are_seen(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, settings = small_llama(11, 4), Settings(2, 8, 1.0, "never", (2, 7, 9, 0))
    theirs = generated(model, settings)
    assert same(searched(model, settings), theirs)
    monkeypatch.setattr(Settings, "candidates", property(lambda self: times * self.width))
    assert not same(searched(model, settings), theirs)


def test_processors_left_out_or_before_the_softmax_are_seen(
    llamas: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    controls = Repetition(repetition_penalty=1.4)
    right = search._Search._processed

    def renormalised(self: Any, log_probs: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(right(self, log_probs), dim=-1)

    monkeypatch.setattr(search._Search, "_processed", renormalised)
    assert not _all_same(llamas, repetition=controls)
    monkeypatch.setattr(search._Search, "_processed", lambda _, log_probs: log_probs)
    assert not _all_same(llamas, repetition=controls)


# --- every possible text --------------------------------------------------------------------------------------------


SHORT = [1, 0, 1]
"""A prompt for a vocabulary of three."""


def _every_text(model: Any, vocab: int, length: int) -> dict[tuple[int, ...], float]:
    """The summed log-probability of each text: ended by the end token, or `length` tokens long. No cache, no beams."""
    whole = torch.tensor(list(itertools.product(range(vocab), repeat=length)))
    ids = torch.cat((torch.tensor([SHORT]).expand(len(whole), -1), whole), dim=1)
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits[:, len(SHORT) - 1 : -1]
        edges = torch.log_softmax(logits.float(), dim=-1).gather(2, whole[:, :, None])[:, :, 0].double()
    texts: dict[tuple[int, ...], float] = {}
    for tokens, row in zip(whole.tolist(), edges.tolist(), strict=True):
        stop = tokens.index(END) + 1 if END in tokens else length
        texts[tuple(tokens[:stop])] = math.fsum(row[:stop])
    return texts


def _found_best(done: Searched, texts: dict[tuple[int, ...], float], power: float) -> bool:
    ranked = sorted((total / len(text) ** power for text, total in texts.items()), reverse=True)
    return done.scores == pytest.approx(ranked[: len(done.scores)], rel=1e-4)


@pytest.mark.parametrize(("vocab", "length"), [(3, 5), (4, 4), (5, 3)])
def test_wide_enough_it_finds_the_best_of_all_texts(vocab: int, length: int) -> None:
    """With vocab ** (length - 1) beams nothing that matters is pruned: the shelf is the exact best."""
    for seed, power in itertools.product(range(3), POWERS):
        model = small_llama(vocab, seed)
        texts = _every_text(model, vocab, length)
        done = searched(model, Settings(vocab ** (length - 1), length, power, "false", (END,)), SHORT)
        assert _found_best(done, texts, power), (seed, power)


def test_too_narrow_it_misses_the_best_of_all_texts() -> None:
    missed = 0
    for seed in range(8):
        model = small_llama(4, seed)
        done = searched(model, Settings(1, 4, 0.0, "never", (END,)), SHORT)
        missed += not _found_best(done, _every_text(model, 4, 4), 0.0)
    assert missed


# --- with and without a cache ---------------------------------------------------------------------------------------

SEARCH = Settings(4, 14, 1.0, "false", (2, 9))
LONG_PROMPT = [5, 9, 17, 30, 44, 51, 8, 8, 23, 60, 11, 90]


def _scores(done: Searched) -> list[list[float]]:
    return [[c.score for c in step.candidates] for step in done.steps]


def _ways(kind: str) -> tuple[bool, ...]:
    return (True, False) if kind == "llama" else (False,)


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_cache_it_is_what_it_is_without(tiny: Tiny, kind: str) -> None:
    """Case B6: full and sliding layers (windows of 8, passed), fast path and generic: every candidate's score."""
    model = tiny(kind).model
    plain = drained(WithoutCache(model, LONG_PROMPT), SEARCH, LONG_PROMPT)
    assert any(step.rows != tuple(range(len(step.rows))) for step in plain.steps[2:]), "some step must reorder"
    for fast in _ways(kind):
        done = searched(model, SEARCH, LONG_PROMPT, fast=fast)
        assert done.sequences == plain.sequences
        assert [s.rows for s in done.steps] == [s.rows for s in plain.steps]
        for ours, theirs in zip(_scores(done), _scores(plain), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-3)
        assert same(done, generated(model, SEARCH, LONG_PROMPT))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_left_as_it_was_is_seen(tiny: Tiny, kind: str) -> None:
    model = tiny(kind).model
    plain = drained(WithoutCache(model, LONG_PROMPT), SEARCH, LONG_PROMPT)
    for fast in _ways(kind):
        wrong = Settings(4, 14, 1.0, "false", (2, 9), mistake="cache_not_reordered")
        assert searched(model, wrong, LONG_PROMPT, fast=fast).sequences != plain.sequences


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_sliding_or_full_layer_reordered_by_half_is_seen(
    tiny: Tiny, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case B6: keys moved and values not."""
    model = tiny(kind).model
    plain = drained(WithoutCache(model, LONG_PROMPT), SEARCH, LONG_PROMPT)
    right = cache_layout.reorder

    def half(cache: Any, rows: Any) -> None:
        before = [layer.values for layer in cache.layers]
        right(cache, rows)
        for layer, values in zip(cache.layers, before, strict=True):
            if values.shape[0] == len(rows):
                layer.values = values.clone()

    monkeypatch.setattr(cache_layout, "reorder", half)
    wrong = _scores(searched(model, SEARCH, LONG_PROMPT, fast=False))
    assert [s for row in wrong for s in row] != pytest.approx([s for row in _scores(plain) for s in row], abs=1e-3)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 16])
def test_the_fast_path_takes_every_width(tiny: Tiny, width: int) -> None:
    model = tiny("llama").model
    settings = Settings(width, 10, 1.0, "false", (2,))
    fast, plain = (searched(model, settings, LONG_PROMPT, fast=way) for way in (True, False))
    assert fast.sequences == plain.sequences
    assert fast.scores == pytest.approx(plain.scores, rel=1e-5, abs=1e-5)


def test_the_fast_path_refuses_what_does_not_fit(tiny: Tiny) -> None:
    with pytest.raises(ModelError, match="is not LlamaForCausalLM"):
        choose_beams(tiny("qwen3").model, LONG_PROMPT, width=2, max_new_tokens=4, fast=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_holds_what_the_formula_says(tiny: Tiny, kind: str) -> None:
    """Bytes of the real tensors: the prompt once on the fast path, once for each beam on the other."""
    loaded = tiny(kind)
    for fast in _ways(kind):
        beams = choose_beams(loaded.model, LONG_PROMPT, width=3, max_new_tokens=6, fast=fast)
        for _ in beams.prefill():
            pass
        per_position = sum(2 * f.kv_heads * f.head_dim * 4 for f in loaded.facts.layers)
        assert drained(beams, Settings(3, 6), LONG_PROMPT).steps
        held = beams.held()
        assert (held.prompt, held.generated, held.rows) == (12, 5, 3)
        if kind in ("gemma3", "mistral"):
            continue  # windows: see the experiment's ledger
        assert held.bytes == per_position * (12 + 3 * 5 if fast else 3 * 17)


# --- other ways through the same distributions ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_greedy_and_drawn_are_the_plain_decoder(tiny: Tiny, kind: str) -> None:
    """After a search, on the same prompt's cache: the tokens of the token loop, greedy and drawn with the same seed."""
    model = tiny(kind).model
    beams = choose_beams(model, LONG_PROMPT, width=3, max_new_tokens=12)
    for _ in beams.prefill():
        pass
    settings = Settings(3, 12, 1.0, "false", (2,))
    samplings = [Sampling(), Sampling(do_sample=True, temperature=1.3, seed=5)]
    for _ in range(2):
        drained(beams, settings, LONG_PROMPT)
        ways = follow(beams, settings, LONG_PROMPT, samplings)
        while True:
            try:
                next(ways)
            except StopIteration as stop:
                followed = stop.value
                break
        for way, sampling in zip(followed, samplings, strict=True):
            plain = decode(model, LONG_PROMPT, max_new_tokens=12, end_token_ids=(2,), sampling=sampling)
            steps = [s for s in plain if hasattr(s, "log_prob")]
            assert way.token_ids == [s.token_id for s in steps]
            if not sampling.do_sample:
                assert way.log_probs == pytest.approx([s.log_prob for s in steps], abs=1e-4)
        beams.rewind()
