"""The experiment as a citizen: stopped anywhere, interleaved, refused, asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from experiment_runs import run_in_turns
from kv_cache_runs import Ran, hooks_on, reference_threads, run_to_end

from lab.backend.validation import validated
from lab.errors import BadInput, NotFound, Unavailable
from lab.events import Progress, encode_event
from lab.events.codec import to_json
from lab.events.decoding import PromptEncoded
from lab.events.kv_cache import TokenDecoded
from lab.experiments.base import Question, RunContext
from lab.experiments.kv_cache.params import KVCacheParams
from lab.experiments.kv_cache.run import KVCacheRunner
from lab.experiments.registry import EXPERIMENTS, get_experiment
from lab.kv_cache.replay import CacheReplay

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
_ENDED = object()
SMALL = {"prompt": "the cache keeps", "max_new_tokens": 6, "without_cache_tokens": 3}


@pytest.fixture
def llama(tiny: Tiny) -> LoadedModel:
    return tiny("llama")


def _tensors(model: Any) -> dict[str, tuple[int, float]]:
    return {name: (t.data_ptr(), float(t.double().sum())) for name, t in model.state_dict().items()}


def _start(model: LoadedModel, **params: Any) -> Any:
    return KVCacheRunner().run(RunContext(model=model), KVCacheParams(**params))


def test_stopped_at_any_yield_it_leaves_nothing_behind(llama: LoadedModel) -> None:
    before = _tensors(llama.model)
    state = torch.get_rng_state()
    # How many slices a run has depends on the clock, so the last stop is the one that no run reaches.
    stop, ended = 0, False
    while not ended:
        generator = _start(llama, **SMALL, do_sample=True)
        for _ in range(stop):
            if next(generator, _ENDED) is _ENDED:
                ended = True
                break
            assert not torch.is_inference_mode_enabled()
            assert torch.is_grad_enabled()
        generator.close()
        assert reference_threads() == []
        assert hooks_on(llama.model) == 0
        assert torch.equal(state, torch.get_rng_state())
        stop += 1
    assert stop > 20
    assert _tensors(llama.model) == before


def _plain(ran: Ran) -> list[dict[str, Any]]:
    """Events without what a clock wrote."""
    bodies = [encode_event(e) for e in ran.events if not isinstance(e, Progress)]
    return [{k: v for k, v in body.items() if k != "ms"} for body in bodies]


def test_two_runs_interleaved_equal_each_alone(llama: LoadedModel) -> None:
    settings = [
        {**SMALL, "do_sample": True, "seed": 3},
        {**SMALL, "prompt": "all the tokens", "do_sample": True, "seed": 4, "trace_layers": (1,)},
    ]
    alone = [run_to_end(llama, **s) for s in settings]
    both = run_in_turns(KVCacheRunner(), llama, [KVCacheParams(**s) for s in settings])
    for together, one in zip(both, alone, strict=True):
        assert together.outcome == one.outcome
        assert _plain(together) == _plain(one)
        assert together.proof.verdict == "equal"


def test_the_same_parameters_give_the_same_events(llama: LoadedModel) -> None:
    assert _plain(run_to_end(llama, **SMALL)) == _plain(run_to_end(llama, **SMALL))


def test_progress_ends_at_its_total(llama: LoadedModel) -> None:
    for more in ({}, {"without_cache_tokens": 0}, {"max_new_tokens": 1}):
        steps = run_to_end(llama, **{**SMALL, **more}).of(Progress)
        assert [p.done for p in steps] == sorted(p.done for p in steps)
        assert all(0 <= p.done <= p.total for p in steps)
        assert len({p.total for p in steps}) == 1


def test_text_that_spans_tokens_joins_to_the_text(llama: LoadedModel) -> None:
    ran = run_to_end(llama, prompt="日本語 and 🙂 are", max_new_tokens=40, without_cache_tokens=0)
    encoded = ran.of(PromptEncoded)[0]
    whole = llama.tokenizer.decode(
        [*encoded.token_ids, *ran.outcome.token_ids], skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    assert "".join(encoded.texts) + ran.outcome.text == whole
    assert len(encoded.texts) == len(encoded.token_ids)


def test_it_ends_at_an_end_token(llama: LoadedModel) -> None:
    flat = {"prompt": "the", "do_sample": True, "temperature": 5.0, "top_k": 0, "without_cache_tokens": 2}
    for seed in range(20):  # one token of 320 ends the text
        ran = run_to_end(llama, **flat, max_new_tokens=200, seed=seed)
        if len(ran.outcome.token_ids) < 200:
            break
    else:
        pytest.fail("no seed met an end token")
    tokens = ran.of(TokenDecoded)
    assert [t.is_end for t in tokens] == [False] * (len(tokens) - 1) + [True]
    assert ran.proof.verdict == "equal"
    assert ran.of(Progress)[-1].done <= ran.of(Progress)[-1].total


def test_a_prompt_with_special_tokens_inside_is_legal(llama: LoadedModel) -> None:
    """Case P2: the end token inside the prompt is text, not padding."""
    ran = run_to_end(llama, **{**SMALL, "prompt": "the cache<|im_end|>keeps the keys"})
    assert 2 in ran.of(PromptEncoded)[0].token_ids
    assert ran.proof.verdict == "equal"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"trace_layers": (0, 2)}, "Layer 2 does not exist: .* has 2 layers"),
        ({"max_new_tokens": 512}, "512 new tokens .* context of 512"),
    ],
)
def test_prepare_refuses_with_the_numbers(llama: LoadedModel, params: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        KVCacheRunner().prepare(llama.facts, KVCacheParams(**params))
    with pytest.raises(BadInput, match=words):
        next(_start(llama, **params))


def test_chat_needs_a_template(tiny: Tiny) -> None:
    loaded = tiny("llama", chat=False)
    with pytest.raises(BadInput, match="chat template"):
        KVCacheRunner().prepare(loaded.facts, KVCacheParams(chat=True))
    with_template = run_to_end(tiny("llama"), **SMALL, chat=True)
    assert with_template.of(PromptEncoded)[0].chat
    assert "assistant" in "".join(with_template.of(PromptEncoded)[0].texts)
    assert with_template.proof.verdict == "equal"


def test_prompt_and_tokens_beyond_the_context_are_refused_with_the_numbers(llama: LoadedModel) -> None:
    with pytest.raises(BadInput, match=r"prompt tokens and 500 new ones pass .* context of 512"):
        run_to_end(llama, prompt="the cache keeps the keys and the values" * 3, max_new_tokens=500)


@pytest.mark.parametrize(
    "question",
    [{"index": 6}, {"layer": 2}, {"head": 4}],
)
def test_attention_of_what_is_not_there_is_refused(llama: LoadedModel, question: dict[str, int]) -> None:
    ran = run_to_end(llama, **SMALL)
    with pytest.raises(BadInput, match="There is no"):
        ran.ask("attention", **{"index": 1, "layer": 0, "head": 0, **question})


def test_asking_leaves_the_model_and_the_cache_alone(llama: LoadedModel) -> None:
    before = _tensors(llama.model)
    ran = run_to_end(llama, **SMALL)
    first = ran.ask("attention", index=2, layer=1, head=1)
    for index in (5, 1, 0, 3):
        ran.ask("attention", index=index, layer=0, head=0)
    assert ran.ask("attention", index=2, layer=1, head=1) == first
    assert hooks_on(llama.model) == 0
    assert _tensors(llama.model) == before


def test_attention_needs_a_run_and_its_cache(llama: LoadedModel) -> None:
    runner = KVCacheRunner()
    question = runner.inspections["attention"]()
    for context in (None, RunContext(model=llama)):
        with pytest.raises(Unavailable, match="finished run"):
            runner.inspect(context, llama.facts, "attention", question)


def test_a_windows_first_read_is_gone_and_says_so(tiny: Tiny) -> None:
    ran = run_to_end(tiny("mistral"), prompt="the cache keeps the keys and the values", max_new_tokens=3)
    with pytest.raises(Unavailable, match="sees 8 positions"):
        ran.ask("attention", index=0, layer=1, head=0)
    assert ran.ask("attention", index=1, layer=1, head=0)["positions"] == 8


def test_a_cache_above_the_cap_is_not_kept(llama: LoadedModel) -> None:
    ran = run_to_end(llama, **SMALL)
    whole = ran.context.kept["cache"]
    assert isinstance(whole, CacheReplay)
    assert 0 < whole.nbytes < 4 * 2**20
    small = CacheReplay(llama.model, max_bytes=1000)
    for step in whole._steps:
        small.record(whole._cache, step)  # type: ignore[arg-type]
    assert small.too_large
    assert small.nbytes == 0
    with pytest.raises(Unavailable, match="not kept"):
        small.attention(0, 0, 0)


def test_what_if_needs_no_run(llama: LoadedModel) -> None:
    runner = KVCacheRunner()
    question = runner.inspections["what_if"](batch=2, window=16)
    answer = runner.inspect(None, llama.facts, "what_if", question)
    assert answer["free_bytes"] > 0
    assert answer["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    curves = {c["id"]: c for c in answer["curves"]}
    at = answer["contexts"].index(1024)
    per_token = 2 * 2 * 2 * 8 * 4
    assert curves["model"]["bytes"][at] == 2 * 1024 * per_token
    assert curves["window"]["bytes"][at] == 2 * 16 * per_token
    assert len(json.dumps(to_json(answer))) < 256 * 1024


def test_the_worked_example_has_the_texts_figures(llama: LoadedModel) -> None:
    runner = KVCacheRunner()
    answer = runner.inspect(None, llama.facts, "worked_example", runner.inspections["worked_example"]())
    assert answer["figures"] == {
        "tokens": 1000,
        "computations_without": 500_500,
        "computations_with": 1000,
        "bytes_per_token": 524_288,
        "context": 8192,
        "bytes_32_kv_heads": 4 * 2**30,
        "bytes_8_kv_heads": 2**30,
    }
    assert len(answer["steps"]) == 3
    json.dumps(to_json(answer), allow_nan=False)


def test_an_unknown_question_names_those_there_are(llama: LoadedModel) -> None:
    runner = KVCacheRunner()
    with pytest.raises(NotFound, match="attention, what_if, worked_example"):
        runner.inspect(None, llama.facts, "histogram", runner.inspections["worked_example"]())


def test_the_registry() -> None:
    assert get_experiment("kv_cache") is EXPERIMENTS["kv_cache"]
    with pytest.raises(NotFound, match="kv_cache"):
        get_experiment("beams")
    assert isinstance(get_experiment("kv_cache").load(), KVCacheRunner)


def test_what_has_no_keys_and_values_is_not_supported(llama: LoadedModel) -> None:
    supports = get_experiment("kv_cache").supports
    assert supports(llama.facts) == ""
    other = tuple(replace(layer, kind="other", window=None) for layer in llama.facts.layers)
    state = replace(llama.facts, layers=other, architecture="MambaForCausalLM", name="Mamba")
    assert "Mamba" in supports(state)
    assert supports(replace(state, architecture="DeepseekV3ForCausalLM")) == ""


def test_every_preset_is_valid() -> None:
    for preset in get_experiment("kv_cache").presets:
        assert KVCacheParams(**preset.params)
        assert preset.question.endswith("?")


def test_the_registry_needs_no_torch() -> None:
    code = "import sys, lab.experiments.registry; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_true_is_not_taken_for_a_number() -> None:
    with pytest.raises(BadInput, match="seed is True: a number is needed"):
        validated(KVCacheParams, {"seed": True})
    assert validated(KVCacheParams, {"seed": 1, "do_sample": True}).seed == 1
    with pytest.raises(BadInput, match=r"trace_layers is \[0, True\]: a number is needed"):
        validated(KVCacheParams, {"trace_layers": [0, True]})


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_true_is_not_taken_for_a_number_in_a_question(experiment: str) -> None:
    asked = 0
    for name, cls in get_experiment(experiment).load().inspections.items():
        assert issubclass(cls, Question), f"{name} of {experiment} has rules of its own"
        for field, info in cls.model_fields.items():
            if info.annotation in (int, float):
                asked += 1
                with pytest.raises(BadInput, match=f"{field} is True: a number is needed"):
                    validated(cls, {field: True})
    assert asked
