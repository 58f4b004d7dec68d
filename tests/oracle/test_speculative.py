"""The `speculative` experiment on tiny models: what it tells, what it proves, and that each mistake turns it red."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import TYPE_CHECKING, Any

import pytest
from speculative_runs import Ran, generated, run_to_end

from lab.decoding.drafts.choose import TITLES, why_not
from lab.errors import BadInput, LabError, Unavailable
from lab.events import Progress, encode_line
from lab.events.decoding import PromptEncoded
from lab.events.speculative import (
    DraftRanked,
    DraftReady,
    FirstToken,
    IdentityShown,
    PlainToken,
    SpeculativeFigures,
    SpeculativeRound,
    SweepPoint,
    TrialPoint,
)
from lab.experiments.speculative.params import BreakRun, SpeculativeParams
from lab.experiments.speculative.run import SpeculativeRunner
from lab.experiments.speculative.setup import wish_of

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PROMPT = "the cache keeps the keys and the values of the cache keeps the"
BASE: dict[str, Any] = {
    "prompt": PROMPT,
    "chat": False,
    "max_new_tokens": 20,
    "draft": "early_exit",
    "exit_layer": 1,
}
STANDS = ("accepted", "resampled", "bonus", "plain")
MISTAKES = ("no_residual", "wrong_q", "processors_skipped", "cache_not_cropped", "top_token_on_rejection")


def _run(model: LoadedModel, **more: Any) -> Ran:
    return run_to_end(model, **{**BASE, **more})


@pytest.fixture(scope="module")
def sampled(tiny: Tiny) -> Ran:
    return _run(tiny("llama"), max_new_tokens=30)


def test_the_strip_reads_as_the_text(sampled: Ran) -> None:
    (first,) = sampled.of(FirstToken)
    rounds = sampled.of(SpeculativeRound)
    tokens, texts = [first.token_id], [first.text]
    for done in rounds:
        stand = [t for t in done.tokens if t.kind in STANDS]
        assert len(stand) == done.emitted
        assert [t.position for t in stand] == list(range(len(tokens), len(tokens) + done.emitted))
        tokens += [t.token_id for t in stand]
        texts += [t.text for t in stand]
        kinds = [t.kind for t in done.tokens]
        # A chain: accepted, then at most one rejection, then what was never judged, then the target's own.
        assert kinds == sorted(kinds[:-1], key=["accepted", "rejected", "unjudged"].index) + kinds[-1:]
        assert kinds.count("rejected") == (kinds[-1] == "resampled")
    assert tuple(tokens) == sampled.outcome.token_ids
    assert "".join(texts) == sampled.outcome.text
    plain = sampled.of(PlainToken)
    assert [p.index for p in plain] == list(range(len(plain)))
    assert len(plain) == len(tokens) or sampled.context.model.end_token_ids


def test_every_judged_token_can_be_checked_by_hand(sampled: Ran) -> None:
    judged = [t for done in sampled.of(SpeculativeRound) for t in done.tokens]
    assert {t.kind for t in judged} >= {"accepted", "rejected", "resampled"}
    for token in judged:
        if token.kind in ("accepted", "rejected"):
            assert token.accept == pytest.approx(min(1.0, token.p / token.q), rel=1e-5)
            assert (token.u < token.accept) == (token.kind == "accepted")
            share = next(s for s in token.shares if s.token_id == token.token_id)
            assert (share.p, share.q) == pytest.approx((token.p, token.q), rel=1e-5)
            for s in token.shares:
                left = 1 - token.alpha
                assert s.residual == pytest.approx(max(0.0, s.p - s.q) / left, abs=1e-5)
        if token.kind == "unjudged":
            assert isnan(token.accept)
            assert isnan(token.alpha)
            assert token.shares == ()
        if token.kind == "resampled":
            assert next(s.residual for s in token.shares if s.token_id == token.token_id) > 0
    # All of it travels.
    assert all(encode_line(event) for event in sampled.events)


def test_the_figures_agree_with_the_rounds(sampled: Ran) -> None:
    (figures,) = sampled.of(SpeculativeFigures)
    rounds = sampled.of(SpeculativeRound)
    judged = [t for r in rounds for t in r.tokens if t.kind in ("accepted", "rejected")]
    assert figures.rounds == len(rounds)
    assert figures.new_tokens == len(sampled.outcome.token_ids)
    assert figures.judged == len(judged)
    assert figures.accepted == sum(t.kind == "accepted" for t in judged)
    assert figures.alpha == pytest.approx(sum(t.alpha for t in judged) / len(judged))
    assert figures.tokens_per_pass == pytest.approx(sum(r.emitted for r in rounds) / len(rounds))
    assert figures.measured is not None
    assert figures.verdict


def test_a_sampled_run_proves_its_distribution(sampled: Ran) -> None:
    proof = sampled.proof
    assert (proof.verdict, proof.unit) == ("equal", "positions")
    assert proof.matched == proof.compared >= len(sampled.outcome.token_ids) - 1
    assert proof.detail["identity_largest_difference"] < 1e-9
    assert proof.detail["log_p_largest_difference"] < 1e-3
    assert proof.detail["replay_equal"]
    assert proof.detail["rejections"] > 3


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mistral", "gpt2"])
def test_a_greedy_run_equals_generate(tiny: Tiny, kind: str) -> None:
    model = tiny(kind)
    ran = _run(model, draft="lookup", do_sample=False, repetition_penalty=1.2, max_new_tokens=24)
    assert ran.proof.verdict == "equal", ran.proof.explanation
    assert "generate()" in ran.proof.claim
    ids = ran.of(PromptEncoded)[0].token_ids
    ends = list(model.end_token_ids)
    expected = generated(model.model, ids, 24, repetition_penalty=1.2, eos_token_id=ends)
    assert list(ran.outcome.token_ids) == expected


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_turns_a_sampled_run_red(tiny: Tiny, mistake: BreakRun) -> None:
    proof = _run(tiny("llama"), break_run=mistake).proof
    assert proof.verdict == "different"
    assert proof.matched < proof.compared
    expected = {
        "no_residual": "from the residual",
        "wrong_q": "min\\(1, p/q\\)|from the residual",
        "processors_skipped": "from the residual",
        "cache_not_cropped": "rejected tokens were left in it",
        "top_token_on_rejection": "from the residual",
    }
    assert any(part.replace("\\", "") in proof.explanation for part in expected[mistake].split("|")), proof.explanation


def test_a_cache_that_is_not_cropped_turns_a_greedy_run_red(tiny: Tiny) -> None:
    proof = _run(tiny("llama"), do_sample=False, break_run="cache_not_cropped").proof
    assert proof.verdict == "different"
    assert "rejected tokens were left in it" in proof.explanation


def test_mistakes_that_nothing_could_show_are_refused(tiny: Tiny) -> None:
    facts = tiny("llama").facts
    runner = SpeculativeRunner()
    for params, words in (
        ({"do_sample": False, "break_run": "no_residual"}, "changes nothing"),
        ({"break_run": "processors_skipped", "top_k": 0}, "no processors"),
        ({"task": "trial", "do_sample": False}, "draws nothing"),
        ({"exit_layer": 3}, "first 3 layers, and tiny-llama"),
        ({"draft": "eagle"}, "trained head"),
        ({"draft": "model"}, "No draft model"),
        ({"draft": "retrieval", "store": "x", "store_text": "y"}, "both a path and a text"),
    ):
        with pytest.raises(BadInput, match=words):
            runner.prepare(facts, SpeculativeParams(**{**BASE, **params}))


def test_a_draft_with_another_tokenizer_is_refused_by_name(tiny: Tiny, tiny_directory: Any, tmp_path: Any) -> None:
    import json
    import shutil

    other = tmp_path / "stranger"
    shutil.copytree(tiny_directory("llama"), other)
    file = other / "tokenizer.json"
    body = json.loads(file.read_text(encoding="utf-8"))
    vocab = body["model"]["vocab"]
    one, two = list(vocab)[40], list(vocab)[41]
    vocab[one], vocab[two] = vocab[two], vocab[one]
    file.write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(LabError, match="another tokenizer"):
        _run(tiny("llama"), draft="model", draft_model=str(other))


def test_another_model_drafts(tiny: Tiny, tiny_directory: Any) -> None:
    ran = _run(tiny("llama"), draft="model", draft_model=str(tiny_directory("llama", seed=5)))
    assert ran.proof.verdict == "equal", ran.proof.explanation
    assert ran.of(DraftReady)[0].bytes > 0
    assert any(r.draft_positions[2] for r in ran.of(SpeculativeRound))


def test_max_new_tokens_one_has_no_rates(tiny: Tiny) -> None:
    ran = _run(tiny("llama"), max_new_tokens=1)
    (figures,) = ran.of(SpeculativeFigures)
    assert figures.accept_judged is None
    assert figures.accept_drafted is None
    assert figures.alpha is None
    assert figures.tokens_per_pass is None
    assert len(ran.outcome.token_ids) == 1
    assert ran.proof.verdict == "equal"


@pytest.mark.parametrize("do_sample", [True, False])
def test_the_sweep_has_a_point_for_each_gamma(tiny: Tiny, do_sample: bool) -> None:
    ran = _run(tiny("llama"), task="sweep", do_sample=do_sample)
    points = ran.of(SweepPoint)
    assert [p.gamma for p in points] == [1, 2, 3, 4, 5, 6, 8, 12, 16]
    assert all(p.figures.gamma == p.gamma and p.figures.measured is not None for p in points)
    assert ran.proof.verdict == "equal", ran.proof.explanation
    stages = [p.stage for p in ran.of(Progress)]
    assert "proposing 16 at a time" in stages


def test_the_drafts_are_ranked_and_those_that_cannot_run_say_why(tiny: Tiny) -> None:
    ran = _run(tiny("llama"), task="drafts", max_new_tokens=6, do_sample=False)
    ranked = {r.draft: r for r in ran.of(DraftRanked)}
    assert set(ranked) == set(TITLES)
    assert "head" in ranked["eagle"].skipped
    assert ranked["model"].skipped
    for name in ("lookup", "early_exit"):
        entry = ranked[name]
        assert entry.skipped == ""
        assert entry.figures is not None
        assert entry.figures.new_tokens <= 12 * 6
        assert [kind for kind, _, _ in entry.by_kind] == ["question", "story", "list", "copy"]
    assert ran.proof.verdict == "equal", ran.proof.explanation


def test_the_trial_is_green_and_has_power(tiny: Tiny) -> None:
    ran = _run(tiny("llama"), task="trial", trial_runs=1500, draft="lookup")
    (identity,) = ran.of(IdentityShown)
    assert identity.total_variation >= 0.3
    assert identity.largest_difference < 1e-12
    points = ran.of(TrialPoint)
    assert [p.runs for p in points] == list(range(50, 1501, 50))
    assert points[-1].power > 0.999
    assert points[-1].p_value > 1e-6
    assert ran.proof.verdict == "equal"
    assert ran.proof.detail["power_against_the_draft"] > 0.999
    assert "total variation" in ran.of(DraftReady)[0].notes[-1]


@pytest.mark.parametrize("name", ["early_exit", "model"])
def test_the_trial_with_drafts_that_draw(tiny: Tiny, tiny_directory: Any, name: str) -> None:
    other = str(tiny_directory("llama", seed=5))
    ran = _run(tiny("llama"), task="trial", trial_runs=300, draft=name, draft_model=other)
    assert ran.proof.verdict == "equal"
    again = _run(tiny("llama"), task="trial", trial_runs=300, draft=name, draft_model=other)
    assert ran.of(TrialPoint) == again.of(TrialPoint)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_turns_the_trial_red(tiny: Tiny, mistake: BreakRun) -> None:
    # What is left in the cache shows after rejections, of which this draft has more; nothing is remembered there.
    other = {"draft": "early_exit", "trial_runs": 1500} if mistake == "cache_not_cropped" else {}
    settings = {"task": "trial", "trial_runs": 1500, "draft": "lookup", "break_run": mistake, **other}
    proof = _run(tiny("llama"), **settings).proof
    assert proof.verdict == "different", proof.explanation
    assert "do not follow p" in proof.explanation


def test_more_tokens_of_a_position_can_be_asked_for(sampled: Ran) -> None:
    done = sampled.of(SpeculativeRound)[0]
    row = next(i for i, t in enumerate(done.tokens) if t.kind != "unjudged")
    answer = sampled.ask("position", round=0, row=row, tokens=64)
    assert answer["token_id"] == done.tokens[row].token_id
    assert len(answer["shares"]) > len(done.tokens[row].shares)
    assert 0.9 < answer["listed_p"] <= 1 + 1e-5
    with pytest.raises(Unavailable, match="not judged"):
        sampled.ask("position", round=0, row=77)


def test_the_worked_example_is_the_lessons(sampled: Ran) -> None:
    example = sampled.ask("worked_example")
    assert example["acceptance"] == pytest.approx((0.4, 1, 1))
    assert example["residual"] == pytest.approx((0, 2 / 3, 1 / 3))
    assert example["total_acceptance"] == pytest.approx(0.7)
    assert example["emitted"] == pytest.approx((0.2, 0.5, 0.3))


def test_the_form_is_narrowed_to_the_model(tiny: Tiny) -> None:
    llama, gpt2 = tiny("llama").facts, tiny("gpt2").facts
    fields = SpeculativeParams.for_model(llama)["properties"]
    assert fields["exit_layer"]["maximum"] == 2
    assert "eagle" in fields["draft"]["disabled_options"]
    assert "early_exit" not in fields["draft"]["disabled_options"]
    assert fields["draft"]["default"] == "lookup"
    narrowed = SpeculativeParams.for_model(gpt2)["properties"]
    assert set(narrowed["draft"]["disabled_options"]) == {"eagle", "lookup_eagle", "early_exit"}
    # What the form says and what a run refuses are the same.
    for facts in (llama, gpt2):
        impossible = SpeculativeParams.for_model(facts)["properties"]["draft"]["disabled_options"]
        for name in TITLES:
            params = SpeculativeParams(**{**BASE, "draft": name, "draft_model": "some", "exit_layer": 1})
            assert bool(why_not(facts, wish_of(params))) == (name in impossible)
