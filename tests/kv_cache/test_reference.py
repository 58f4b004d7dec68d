"""`generate()` in lock-step: the same tokens, no trace left, nobody else's draws touched."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

from lab.experiments.reference import ReferenceTokens, reference_generate

PROMPT = [3, 14, 15, 9, 2, 6]


def _llama(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    return LlamaForCausalLM(config).eval()


def _gemma() -> Gemma3ForCausalLM:
    torch.manual_seed(1)
    config = Gemma3TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=6,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=24,
        sliding_window=16,
        max_position_embeddings=1024,
    )
    return Gemma3ForCausalLM(config).eval()


def _plain(model: torch.nn.Module, prompt: list[int], **config: object) -> list[int]:
    model = copy.deepcopy(model)
    model.generation_config = GenerationConfig()
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=GenerationConfig(**config))
    return [int(t) for t in out[0, len(prompt) :]]


def _drain(generator) -> tuple[list[int], ReferenceTokens]:  # type: ignore[no-untyped-def]
    counts: list[int] = []
    while True:
        try:
            counts.append(next(generator))
        except StopIteration as stop:
            return counts, stop.value


def _hook_count(model: torch.nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def _lab_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "lab-reference"]


def test_greedy_is_generate() -> None:
    model = _llama()
    counts, made = _drain(
        reference_generate(copy.deepcopy(model), PROMPT, max_new_tokens=20, end_token_ids=(), slice_ms=0)
    )
    assert list(made.token_ids) == _plain(model, PROMPT, max_new_tokens=20, do_sample=False)
    assert counts == sorted(counts)
    assert set(range(20)) <= set(counts), "control comes back in every step when slices are short"
    assert made.prefill_chunk is None
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0, -1]
    two = logits.topk(2)
    assert made.token_ids[0] == int(two.indices[0])
    assert made.runners_up[0] == int(two.indices[1])
    assert made.gaps[0] == pytest.approx(float(two.values[0] - two.values[1]), abs=1e-6)


def test_sampling_is_generate_with_the_same_seed_and_leaves_the_global_state_alone() -> None:
    model = _llama()
    torch.manual_seed(5)
    expected = _plain(model, PROMPT, max_new_tokens=20, do_sample=True, temperature=0.7, top_k=10, top_p=0.9)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    _, made = _drain(
        reference_generate(
            copy.deepcopy(model),
            PROMPT,
            max_new_tokens=20,
            end_token_ids=(),
            do_sample=True,
            temperature=0.7,
            top_k=10,
            top_p=0.9,
            seed=5,
            slice_ms=0,
        )
    )
    assert list(made.token_ids) == expected
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    assert expected != _plain(model, PROMPT, max_new_tokens=20, do_sample=True, temperature=0.7, top_k=10, top_p=0.9)


def test_two_runs_and_other_draws_interleaved_equal_each_alone() -> None:
    model = _llama()

    def start(seed: int):  # type: ignore[no-untyped-def]
        return reference_generate(
            copy.deepcopy(model), PROMPT, max_new_tokens=12, end_token_ids=(), do_sample=True, seed=seed, slice_ms=0
        )

    alone = {seed: _drain(start(seed))[1] for seed in (1, 2)}
    torch.manual_seed(3)
    draws_alone = [float(torch.rand(())) for _ in range(30)]

    torch.manual_seed(3)
    draws: list[float] = []
    running = {seed: start(seed) for seed in (1, 2)}
    made: dict[int, ReferenceTokens] = {}
    while running:
        for seed, generator in list(running.items()):
            try:
                next(generator)
            except StopIteration as stop:
                made[seed] = stop.value
                del running[seed]
            assert not torch.is_inference_mode_enabled()
            assert torch.is_grad_enabled()
            draws.append(float(torch.rand(())))
    assert made == alone
    assert draws[:30] == draws_alone


@pytest.mark.parametrize("slices", [0, 1, 2, 7])
def test_given_up_at_any_slice_it_leaves_no_thread_and_no_hook(slices: int) -> None:
    shell = _llama()
    generator = reference_generate(shell, PROMPT, max_new_tokens=200, end_token_ids=(), slice_ms=0)
    state = torch.get_rng_state()
    for _ in range(slices):
        next(generator)
    assert bool(_lab_threads()) == (slices > 0)
    generator.close()
    assert _lab_threads() == []
    assert _hook_count(shell) == 0
    assert torch.equal(state, torch.get_rng_state())


def test_an_error_inside_comes_out_and_leaves_nothing() -> None:
    shell = _llama()
    generator = reference_generate(shell, [999], max_new_tokens=4, end_token_ids=(), slice_ms=0)  # no such token
    with pytest.raises(IndexError):
        _drain(generator)
    assert _lab_threads() == []
    assert _hook_count(shell) == 0


def test_it_ends_at_an_end_token_and_ignores_the_makers_defaults() -> None:
    model = _llama()
    free = _plain(model, PROMPT, max_new_tokens=20, do_sample=False)
    end = free[7]
    model.generation_config = GenerationConfig(repetition_penalty=5.0, min_new_tokens=19)
    _, made = _drain(reference_generate(model, PROMPT, max_new_tokens=20, end_token_ids=(end,)))
    assert list(made.token_ids) == free[: free.index(end) + 1]


@pytest.mark.parametrize("make", [_llama, _gemma])
def test_a_long_prompt_in_generates_own_chunks_is_the_same(make) -> None:  # type: ignore[no-untyped-def]
    model = make()
    prompt = [int(t) for t in torch.randint(0, 64, (600,), generator=torch.Generator().manual_seed(0))]
    _, made = _drain(reference_generate(copy.deepcopy(model), prompt, max_new_tokens=8, end_token_ids=(), slice_ms=0))
    assert made.prefill_chunk == 256
    assert list(made.token_ids) == _plain(model, prompt, max_new_tokens=8, do_sample=False)
    assert len(made.gaps) == len(made.runners_up) == 8
