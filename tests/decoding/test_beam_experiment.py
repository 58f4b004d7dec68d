"""The `beam_search` experiment as a citizen: its tree, its proof, stopped anywhere, interleaved, refused, asked."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from beam_runs import run_to_end, start
from experiment_runs import run_in_turns
from kv_cache_runs import hooks_on, reference_threads

from lab.errors import BadInput, NotFound, Unavailable
from lab.events import Progress, decode_event, encode_event
from lab.events.beam_search import BeamResult, BeamStep, PathFollowed
from lab.events.codec import to_json
from lab.events.decoding import PrefillChunk, PromptEncoded
from lab.experiments.base import Outcome, RunContext
from lab.experiments.beam_search.params import BeamSearchParams
from lab.experiments.beam_search.run import BeamSearchRunner
from lab.experiments.registry import get_experiment

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
_ENDED = object()
SMALL: dict[str, Any] = {"prompt": "the cache keeps", "max_new_tokens": 6, "num_beams": 3}
ENDS = (2, 29, 134, 219, 284)
"""Among the likelier tokens of the tiny models, so that texts end."""


@pytest.fixture
def llama(tiny: Tiny) -> LoadedModel:
    return tiny("llama")


def _tensors(model: Any) -> dict[str, tuple[int, float]]:
    return {name: (t.data_ptr(), float(t.double().sum())) for name, t in model.state_dict().items()}


# --- the tree -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_events_hold_the_whole_tree_and_add_up(tiny: Tiny, kind: str) -> None:
    ran = run_to_end(tiny(kind), **{**SMALL, "max_new_tokens": 10, "end_token_ids": ENDS})
    steps = ran.of(BeamStep)
    score: dict[int, float] = {-1: 0.0}
    depth: dict[int, int] = {-1: 0}
    texts: dict[int, str] = {-1: ""}
    fates: dict[int, str] = {}
    running: tuple[int, ...] = (-1,)
    for index, step in enumerate(steps):
        assert step.index == index
        assert [n.rank for n in step.nodes] == list(range(len(step.nodes))) == list(range(6 * 3))
        for node in step.nodes:
            assert node.id == len(fates)
            assert node.parent == running[node.beam]
            assert node.score == pytest.approx(score[node.parent] + node.log_prob, rel=1e-6)
            score[node.id], depth[node.id] = node.score, depth[node.parent] + 1
            texts[node.id] = texts[node.parent] + node.text
            fates[node.id] = node.fate
        assert step.running == tuple(n.id for n in sorted(step.nodes, key=lambda n: n.becomes) if n.becomes >= 0)
        for h in step.shelf:
            assert fates[h.node] == "finished"
            assert h.length == depth[h.node]
            assert h.score == pytest.approx(score[h.node] / h.length, rel=1e-6)
        running = step.running
        assert 0 <= step.reorder_ms <= step.ms
    (result,) = ran.of(BeamResult)
    assert result.steps == len(steps)
    assert result.hypotheses == steps[-1].shelf
    decode = tiny(kind).tokenizer.decode
    prompt = ran.of(PromptEncoded)[0]
    for hypothesis, ids, text in zip(result.hypotheses, result.token_ids, result.texts, strict=True):
        assert text == texts[hypothesis.node]
        whole = decode([*prompt.token_ids, *ids], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert "".join(prompt.texts) + text == whole
    assert ran.outcome == Outcome(token_ids=result.token_ids[0], text=result.texts[0])
    assert ran.proof.verdict == "equal"
    assert (ran.proof.unit, ran.proof.compared) == ("hypotheses", 3)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3", "mistral"])
def test_the_ledger_is_counted_and_is_the_formula(tiny: Tiny, kind: str) -> None:
    ran = run_to_end(tiny(kind), **{**SMALL, "max_new_tokens": 12})
    prompt = len(ran.of(PromptEncoded)[0].token_ids)
    for step in ran.of(BeamStep):
        assert step.cache_length == prompt + step.index
        assert step.cache_bytes == step.formula_bytes > 0
    sizes = [step.cache_bytes for step in ran.of(BeamStep)]
    assert sizes == sorted(sizes)


def test_every_event_travels(llama: LoadedModel) -> None:
    for more in ({}, {"early_stopping": "true", "end_token_ids": ENDS}):
        for event in run_to_end(llama, **SMALL, **more).events:
            body = encode_event(event)
            json.dumps(body, allow_nan=False)
            again = encode_event(decode_event(body))
            assert again == body


def test_the_ways_beside_it_lie_on_the_tree(llama: LoadedModel) -> None:
    ran = run_to_end(llama, **SMALL, temperature=0.7, seed=4)
    nodes = {n.id: n for step in ran.of(BeamStep) for n in step.nodes}
    greedy, sampled = ran.of(PathFollowed)
    assert (greedy.kind, sampled.kind) == ("greedy", "sampled")
    for way in (greedy, sampled):
        assert len(way.token_ids) == len(way.texts) == len(way.log_probs) == len(way.nodes)
        assert way.score == pytest.approx(math.fsum(way.log_probs) / len(way.token_ids))
        left = False
        for i, (token, node, log_prob) in enumerate(zip(way.token_ids, way.nodes, way.log_probs, strict=True)):
            left = left or node < 0
            if left:
                assert node == -1
            else:
                assert nodes[node].token_id == token
                assert nodes[node].parent == (way.nodes[i - 1] if i else -1)
                assert nodes[node].log_prob == pytest.approx(log_prob, abs=1e-4)
    assert greedy.nodes[0] == 0
    (alone,) = run_to_end(llama, **SMALL, sampled_path=False).of(PathFollowed)
    assert (alone.kind, alone.token_ids, alone.nodes) == ("greedy", greedy.token_ids, greedy.nodes)
    assert run_to_end(llama, **SMALL, temperature=0.7, seed=4).of(PathFollowed)[1] == sampled
    assert run_to_end(llama, **SMALL, temperature=0.7, seed=5).of(PathFollowed)[1].token_ids != sampled.token_ids


def test_with_one_beam_the_path_is_greedys(llama: LoadedModel) -> None:
    ran = run_to_end(llama, **{**SMALL, "num_beams": 1, "max_new_tokens": 12})
    (result,) = ran.of(BeamResult)
    assert result.token_ids[0] == ran.of(PathFollowed)[0].token_ids
    assert ran.proof.verdict == "equal"


# --- the proof ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"length_penalty": -1.0, "early_stopping": "never"},
        {"length_penalty": 2.0, "early_stopping": "true", "num_beams": 5},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 4},
        {"num_beams": 1, "early_stopping": "never", "length_penalty": 2.0},
        {"num_beams": 16, "max_new_tokens": 3},
        {"max_new_tokens": 1},
    ],
)
def test_any_setting_is_generate(llama: LoadedModel, more: dict[str, Any]) -> None:
    ran = run_to_end(llama, **{**SMALL, "max_new_tokens": 9, "end_token_ids": ENDS, **more})
    assert ran.proof.verdict == "equal", ran.proof.explanation
    assert ran.proof.explanation == ""
    assert ran.proof.matched == ran.proof.compared == len(ran.of(BeamStep)[0].nodes) // 6


def test_a_long_prompt_goes_in_chunks_on_both_sides(llama: LoadedModel) -> None:
    prompt = "the cache keeps the keys and the values of all the tokens " * 5
    ran = run_to_end(llama, **{**SMALL, "prompt": prompt, "num_beams": 16})
    assert ran.proof.detail["prefill_chunk_of_generate"] == 16
    assert ran.proof.verdict == "equal"
    assert ran.of(PrefillChunk)[-1].stop == len(ran.of(PromptEncoded)[0].token_ids)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize(
    ("mistake", "findings", "words"),
    [
        ("cache_not_reordered", ["cache"], "the cache of its row holds"),
        ("count_prompt_in_length", ["length", "score"], "tokens, the end token included"),
        ("drop_end_token", ["length", "sum", "score"], "tokens, the end token included"),
    ],
)
def test_each_mistake_turns_the_proof_red(tiny: Tiny, kind: str, mistake: str, findings: list[str], words: str) -> None:
    settings = {**SMALL, "max_new_tokens": 10, "end_token_ids": ENDS}
    assert run_to_end(tiny(kind), **settings).proof.verdict == "equal"
    proof = run_to_end(tiny(kind), **settings, break_run=mistake).proof
    assert proof.verdict == "different"
    assert {f["kind"] for f in proof.detail["findings"]} <= set(findings)
    assert proof.detail["findings"]
    assert words in proof.explanation
    assert proof.matched < proof.compared
    assert proof.detail["note"] == ""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"break_run": "count_prompt_in_length", "length_penalty": 0.0}, "does not count"),
        ({"break_run": "cache_not_reordered", "num_beams": 1}, "were in order at every step"),
    ],
)
def test_a_mistake_without_an_occasion_says_so(llama: LoadedModel, more: dict[str, Any], words: str) -> None:
    proof = run_to_end(llama, **{**SMALL, **more}).proof
    if more["break_run"] == "cache_not_reordered":
        assert proof.verdict == "unproven"
        assert words in proof.explanation
    assert words in proof.detail["note"]


def test_bf16_is_never_called_wrong_for_its_rounding(tiny: Tiny) -> None:
    proof = run_to_end(tiny("llama", dtype="bfloat16"), **SMALL).proof
    assert proof.verdict in ("equal", "tie", "unproven")
    assert proof.detail["dtype"] == "bfloat16"
    broken = run_to_end(tiny("llama", dtype="bfloat16"), **SMALL, break_run="cache_not_reordered").proof
    assert broken.verdict == "different"


# --- a citizen ----------------------------------------------------------------------------------------------------


def test_stopped_at_any_yield_it_leaves_nothing_behind(llama: LoadedModel) -> None:
    before = _tensors(llama.model)
    state = torch.get_rng_state()
    # How many slices a run has depends on the clock, so the last stop is the one that no run reaches.
    stop, ended = 0, False
    while not ended:
        generator = start(llama, **{**SMALL, "max_new_tokens": 4})
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
    assert stop > 12
    assert _tensors(llama.model) == before


def _plain(events: list[Any]) -> list[dict[str, Any]]:
    """Events without what a clock wrote."""
    bodies = [encode_event(e) for e in events if not isinstance(e, Progress)]
    return [{k: v for k, v in body.items() if k not in ("ms", "reorder_ms")} for body in bodies]


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_two_runs_interleaved_equal_each_alone(tiny: Tiny, kind: str) -> None:
    model = tiny(kind)
    settings = [
        {**SMALL, "seed": 3},
        {**SMALL, "prompt": "all the tokens", "num_beams": 5, "seed": 4, "end_token_ids": ENDS},
    ]
    alone = [run_to_end(model, **s) for s in settings]
    both = run_in_turns(BeamSearchRunner(), model, [BeamSearchParams(**s) for s in settings])
    for together, one in zip(both, alone, strict=True):
        assert together.outcome == one.outcome
        assert _plain(together.events) == _plain(one.events)
        assert together.proof.verdict == "equal"


def test_progress_ends_at_its_total(llama: LoadedModel) -> None:
    for more in ({}, {"sampled_path": False}, {"max_new_tokens": 1}, {"num_beams": 1}):
        steps = run_to_end(llama, **{**SMALL, **more}).of(Progress)
        assert [p.done for p in steps] == sorted(p.done for p in steps)
        assert all(0 <= p.done <= p.total for p in steps)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"end_token_ids": (2, 320)}, "End token 320 does not exist: .* has 320 tokens"),
        ({"end_token_ids": (-1,)}, "End token -1 does not exist"),
        ({"min_new_tokens": 30}, "min_new_tokens is 30, above max_new_tokens, 6"),
    ],
)
def test_prepare_refuses_with_the_numbers(llama: LoadedModel, params: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        BeamSearchRunner().prepare(llama.facts, BeamSearchParams(**{**SMALL, **params}))
    with pytest.raises(BadInput, match=words):
        next(start(llama, **{**SMALL, **params}))


# --- asked --------------------------------------------------------------------------------------------------------


def test_the_text_of_a_path_is_told(llama: LoadedModel) -> None:
    ran = run_to_end(llama, **SMALL)
    (result,) = ran.of(BeamResult)
    answer = ran.ask("path", node=result.hypotheses[1].node)
    assert answer["text"] == "".join(answer["texts"]) == result.texts[1]
    assert tuple(answer["token_ids"]) == result.token_ids[1]
    assert answer["sum_log_prob"] == pytest.approx(result.hypotheses[1].sum_log_prob, rel=1e-6)
    lost = next(n for step in ran.of(BeamStep) for n in step.nodes if n.fate == "pruned")
    assert ran.ask("path", node=lost.id)["nodes"][-1] == lost.id
    with pytest.raises(BadInput, match="There is no node 9999: the tree has"):
        ran.ask("path", node=9999)
    runner = BeamSearchRunner()
    for context in (None, RunContext(model=llama)):
        with pytest.raises(Unavailable, match="tree is still kept"):
            runner.inspect(context, llama.facts, "path", runner.inspections["path"](node=0))


def test_the_worked_example_needs_no_run(llama: LoadedModel) -> None:
    runner = BeamSearchRunner()
    answer = runner.inspect(None, llama.facts, "worked_example", runner.inspections["worked_example"]())
    assert answer["greedy"]["winner"] == ["A", "continue"]
    assert answer["beam"]["winner"] == ["B", "end"]
    assert answer["greedy"]["probability"] == pytest.approx(0.24)
    assert answer["beam"]["probability"] == pytest.approx(0.36)
    assert len(json.dumps(to_json(answer), allow_nan=False)) < 20_000
    with pytest.raises(NotFound, match="path, worked_example"):
        runner.inspect(None, llama.facts, "histogram", runner.inspections["worked_example"]())


def test_every_preset_is_valid_and_a_question() -> None:
    presets = get_experiment("beam_search").presets
    assert 4 <= len(presets) <= 5
    for preset in presets:
        assert BeamSearchParams(**preset.params)
        assert preset.question.endswith("?")


def test_the_command_line_runs_it(tiny_directory: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "beam.safetensors"
    command = [sys.executable, "-m", "lab", "run", "beam_search", "--model", str(tiny_directory("llama"))]
    options = ["--num-beams", "4", "--max-new-tokens", "4", "--backend", "local", "--out", str(out)]
    environment = {**os.environ, "LAB_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [e["event"] for e in events]
    assert names[0] == "run_started"
    assert names[-2:] == ["proof", "run_finished"]
    assert names.count("beam_step") == 4
    assert out.is_file()
