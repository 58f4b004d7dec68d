"""The quantized cache in models: the words that come out, beside the dense cache and `generate()`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from lab.decoding.cache_layout import cache_keyword, layer_tensors, stored_lengths, total_bytes
from lab.errors import BadInput, ModelError
from lab.quantization.kv_layer import cache_bytes, quantized_cache, quantized_layers
from lab.quantization.kv_scheme import KvScheme
from lab.quantization.kv_words import KvCompared, KvStep, compare_kv

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
SMALL = KvScheme(bits=8, group=8, window=8, scale_format="float32")
PROMPT = [5, 9, 12, 3, 40, 2, 17, 33, 8, 21, 7, 7, 30, 11, 4, 25, 6, 19, 28, 1]


def compared(loaded: LoadedModel, scheme: KvScheme, new: int = 24, **options: Any) -> tuple[list[KvStep], KvCompared]:
    steps: list[KvStep] = []
    running: Generator[KvStep | None, None, KvCompared] = compare_kv(
        loaded.model, PROMPT, scheme, max_new_tokens=new, **options
    )
    while True:
        try:
            step = next(running)
        except StopIteration as end:
            return steps, end.value
        assert not torch.is_inference_mode_enabled()
        steps += [step] if step is not None else []


@torch.inference_mode()
def generated(loaded: LoadedModel, new: int, **options: Any) -> list[int]:
    ids = torch.tensor([PROMPT])
    out = loaded.model.generate(  # type: ignore[operator, union-attr]
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, pad_token_id=0, eos_token_id=None, **options
    )
    return [int(i) for i in out[0, len(PROMPT) :]]


def with_cache(loaded: LoadedModel, scheme: KvScheme) -> dict[str, Any]:
    return {cache_keyword(loaded.model): quantized_cache(loaded.model, scheme)}


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3"])
def test_a_window_that_holds_all_is_the_dense_cache(tiny: Tiny, kind: str) -> None:
    steps, result = compared(tiny(kind), replace(SMALL, bits=2, window=1000))
    assert result.dense_ids == result.own_ids
    assert all(step.largest == 0.0 == step.kl for step in steps)
    assert result.bytes.codes == result.bytes.scales == 0
    assert result.bytes.dense == result.bytes.plain
    assert result.first_difference is None
    # the invariant tells: with a small window the logits are others
    steps, _ = compared(tiny(kind), replace(SMALL, bits=2, window=0))
    assert max(step.largest for step in steps) > 0


def test_the_runs_are_those_of_generate(tiny: Tiny) -> None:
    """The reference: transformers' own loop with the same cache, the prompt in one pass."""
    loaded = tiny("llama")
    for scheme in (replace(SMALL, bits=2, window=0), SMALL):
        _, result = compared(loaded, scheme)
        assert list(result.dense_ids) == generated(loaded, 24)
        assert list(result.own_ids) == generated(loaded, 24, **with_cache(loaded, scheme))


def test_beams_move_with_their_cache(tiny: Tiny) -> None:
    """With 8 bits and fp32 scales beams find what they find with a dense cache; a layer that does not move differs."""
    loaded, fine = tiny("llama"), replace(SMALL, window=0)
    dense = generated(loaded, 16, num_beams=3)
    assert generated(loaded, 16, num_beams=3, **with_cache(loaded, fine)) == dense


def test_a_long_run_keeps_codes_widened_and_finds_the_same(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, result = compared(tiny("llama"), SMALL)
    monkeypatch.setattr("lab.quantization.kv_words.WIDENED_FROM", 0)
    kept_steps, kept = compared(tiny("llama"), SMALL)
    assert (result.widened, kept.widened) == (False, True)
    assert replace(kept, widened=False) == result
    assert kept_steps == steps


def test_errors_grow_with_fewer_bits(tiny: Tiny) -> None:
    loaded = tiny("llama")
    kls = [compared(loaded, replace(SMALL, bits=bits, window=0))[1].mean_kl for bits in (8, 4, 2)]
    assert 0 < kls[0] < kls[1] < kls[2]


def test_steps_say_what_happened(tiny: Tiny) -> None:
    loaded = tiny("llama")
    steps, result = compared(loaded, replace(SMALL, bits=2, window=0))
    assert [step.index for step in steps] == list(range(24))
    assert [step.dense_id for step in steps] == list(result.dense_ids)
    assert [step.own_text_id for step in steps] == list(result.own_ids)
    same = [step.dense_id == step.same_text_id for step in steps]
    assert result.agreement == pytest.approx(sum(same) / 24)
    assert result.mean_kl == pytest.approx(sum(step.kl for step in steps) / 24)
    if result.first_difference is not None:
        assert same[: result.first_difference] == [True] * result.first_difference
        assert not same[result.first_difference]
    layers, facts = loaded.facts.layers, loaded.facts.layers[0]
    due = replace(SMALL, bits=2, window=0).layer_bytes(len(PROMPT) + 23, facts.kv_heads, facts.head_dim, 4)
    assert result.layer_bytes == (due.total,) * len(layers)
    assert result.bytes.plain == due.plain * len(layers)
    assert result.prefill_bytes == 2 * facts.kv_heads * facts.head_dim * 4 * len(PROMPT) * len(layers)


def test_a_run_stops_at_an_end_token(tiny: Tiny) -> None:
    loaded = tiny("llama")
    _, whole = compared(loaded, SMALL)
    end = whole.dense_ids[5]
    _, result = compared(loaded, SMALL, end_token_ids=[end])
    assert result.dense_ids == whole.dense_ids[: whole.dense_ids.index(end) + 1]


def test_the_ledger_counts_codes(tiny: Tiny) -> None:
    loaded = tiny("llama")
    cache = quantized_cache(loaded.model, replace(SMALL, bits=4, window=0))
    assert total_bytes(cache) == (0, 0)
    with torch.inference_mode():
        loaded.model(input_ids=torch.tensor([PROMPT]), **{cache_keyword(loaded.model): cache}, use_cache=True)
    rows = layer_tensors(cache)
    assert stored_lengths(cache) == (len(PROMPT),) * len(rows)
    assert sum(row.bytes for row in rows) == cache_bytes(cache).total == total_bytes(cache)[0]
    assert {row.kind for row in rows} == {"full"}
    assert cache_bytes(cache).total < cache_bytes(cache).plain


def test_layers_with_a_window_stay_dense(tiny: Tiny) -> None:
    cache = quantized_cache(tiny("gemma3").model, SMALL)
    assert 0 < len(quantized_layers(cache)) < len(cache.layers)
    with pytest.raises(ModelError, match="whole text"):
        quantized_cache(tiny("mistral").model, SMALL)


@pytest.mark.parametrize(("prompt", "new"), [([], 3), ([1], 0)])
def test_nothing_to_compare_is_refused(tiny: Tiny, prompt: list[int], new: int) -> None:
    with pytest.raises(BadInput, match="needs a prompt"):
        next(compare_kv(tiny("llama").model, prompt, SMALL, max_new_tokens=new))


@pytest.mark.model
def test_the_packaged_model_with_a_quantized_cache(packaged_model: LoadedModel) -> None:
    """Eight bits hardly change it, two do; the bytes are the formula's."""
    ids = packaged_model.tokenizer("The capital of France is Paris. " * 14)["input_ids"]
    found: dict[int, KvCompared] = {}
    for bits in (8, 2):
        scheme = KvScheme(bits=bits, window=16)
        running = compare_kv(packaged_model.model, ids, scheme, max_new_tokens=5)
        while True:
            try:
                next(running)
            except StopIteration as end:
                found[bits] = end.value
                break
        due = scheme.layer_bytes(len(ids) + 4, 3, 64, 4)
        assert found[bits].layer_bytes == (due.total,) * 30
    assert found[8].dense_ids == found[8].own_ids
    assert found[8].mean_kl < 1e-3 < found[2].mean_kl
    assert found[2].bytes.total < found[2].bytes.plain / 2
