"""The loop as a generator: slices, limits, traces, mistakes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from lab.decoding import chunks, llama
from lab.decoding.llama import LlamaPass
from lab.decoding.loop import Decoded, Prefilled, Step, decode, decode_uncached
from lab.decoding.sampling import Sampling
from lab.decoding.trace import Trace
from lab.errors import BadInput, ModelError

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
PROMPT = [5, 9, 33, 70, 101, 17]


def drain(run: Generator[Any, None, Decoded]) -> tuple[list[Any], Decoded]:
    items = []
    while True:
        try:
            items.append(next(run))
        except StopIteration as stop:
            return items, stop.value


def steps(run: Generator[Any, None, Decoded]) -> list[Step]:
    return [item for item in drain(run)[0] if isinstance(item, Step)]


@pytest.mark.parametrize("fast", [True, False])
def test_interleaved_runs_equal_each_alone_and_leak_no_mode(tiny: Tiny, fast: bool) -> None:
    model = tiny("llama").model
    sampling = [Sampling(True, 1.3, seed=seed) for seed in (1, 2)]

    def start(i: int) -> Generator[Any, None, Decoded]:
        trace = Trace("full", (i,))
        return decode(model, PROMPT[i:], max_new_tokens=8, sampling=sampling[i], trace=trace, fast=fast)

    alone = [drain(start(i)) for i in (0, 1)]
    runs, items = [start(0), start(1)], [[], []]  # type: ignore[var-annotated]
    for _ in range(len(alone[0][0])):
        for run, seen in zip(runs, items, strict=True):
            seen.append(next(run))
            assert not torch.is_inference_mode_enabled()
            assert torch.is_grad_enabled()
    for (expected, _), seen in zip(alone, items, strict=True):
        assert [s.token_id for s in expected if isinstance(s, Step)] == [
            s.token_id for s in seen if isinstance(s, Step)
        ]
        for one, other in zip(expected[2:], seen[2:], strict=True):
            assert torch.equal(one.attention, other.attention)
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_prefill_goes_in_chunks_and_the_first_token_comes_out_of_it(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 32)
    monkeypatch.setattr(LlamaPass, "chunk", 32)
    model = tiny("llama").model
    prompt = [(7 * i) % 300 for i in range(70)]
    for fast in (True, False):
        items, end = drain(decode(model, prompt, max_new_tokens=2, fast=fast))
        assert items.pop(0) is None
        assert [(i.start, i.stop) for i in items[:3]] == [(0, 32), (32, 64), (64, 70)]
        assert all(isinstance(i, Prefilled) for i in items[:3])
        first, second = items[3:]
        assert (first.index, first.computed, first.fed_position, first.fed_token_id) == (0, 70, 69, prompt[-1])
        assert (second.index, second.computed, second.fed_position) == (1, 1, 70)
        assert second.fed_token_id == first.token_id
        assert first.stored == (70, 70)
        assert second.stored == (71, 71)
        assert end.token_ids == [first.token_id, second.token_id]
    items, end_uncached = drain(decode_uncached(model, prompt, max_new_tokens=2))
    assert [type(i).__name__ for i in items] == ["NoneType", *["NoneType", "NoneType", "Step"] * 2]
    assert [i.computed for i in items if i] == [70, 71]
    assert end_uncached.token_ids == end.token_ids
    assert end_uncached.cache is None


def test_a_pass_that_pauses_between_layers_makes_the_same_sums(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama").model
    prompt = [(7 * i) % 300 for i in range(70)]
    items, end = drain(decode(model, prompt, max_new_tokens=3, trace=Trace("full", layers=(0, 1)), fast=True))
    monkeypatch.setattr(llama, "PAUSE_MS", 0.0)
    paused, same = drain(decode(model, prompt, max_new_tokens=3, trace=Trace("full", layers=(0, 1)), fast=True))
    assert [i for i in items if i is None] == [None]
    assert [i for i in paused if i is None] == [None] * (1 + model.config.num_hidden_layers)
    assert same.token_ids == end.token_ids
    for one, other in zip([i for i in items if i], [i for i in paused if i], strict=True):
        if isinstance(one, Step):
            assert one.log_prob == other.log_prob
            assert torch.equal(one.attention, other.attention)


def test_chunk_shrinks_with_size_and_grows_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(1, 134_515_008, device="meta", bias=False)
    assert chunks.prefill_chunk(model) == chunks.CHUNK  # not on the CPU
    small = nn.Linear(10, 10)
    assert chunks.prefill_chunk(small) == chunks.CHUNK
    monkeypatch.setattr(chunks, "FLOPS_A_SLICE", 200 * 40 / torch.get_num_threads())
    assert chunks.prefill_chunk(small) == 32
    monkeypatch.setattr(chunks, "FLOPS_A_SLICE", 1.0)
    assert chunks.prefill_chunk(small) == 8


def test_stops_at_an_end_token_and_at_the_limit(tiny: Tiny) -> None:
    model = tiny("llama").model
    _, whole = drain(decode(model, PROMPT, max_new_tokens=6))
    assert len(whole.token_ids) == 6
    end = whole.token_ids[2]
    position = whole.token_ids.index(end)
    for run in (decode, decode_uncached):
        _, cut = drain(run(model, PROMPT, max_new_tokens=6, end_token_ids=[end]))  # type: ignore[operator]
        assert cut.token_ids == whole.token_ids[: position + 1]


@pytest.mark.parametrize("fast", [True, False])
def test_light_trace_is_softmax_over_the_whole_vocabulary(tiny: Tiny, fast: bool) -> None:
    model = tiny("llama").model
    sampling = Sampling(True, temperature=0.7, top_k=3, top_p=0.9, seed=4)
    for step in steps(decode(model, PROMPT, max_new_tokens=4, sampling=sampling, trace=Trace(top=5), fast=fast)):
        known = steps(decode(model, PROMPT, max_new_tokens=4, sampling=sampling, trace=Trace(top=320), fast=fast))
        everything = dict(known[step.index].top)
        assert len(everything) == 320
        assert sum(2.718281828459045**v for v in everything.values()) == pytest.approx(1, abs=1e-4)
        assert len(step.top) == 5
        assert step.log_prob == pytest.approx(everything[step.token_id], abs=1e-6)
        best, second = sorted(everything.values(), reverse=True)[:2]
        assert step.gap == pytest.approx((best - second) * 0.7, abs=1e-5)


def test_trace_off_records_nothing_and_gives_the_same_tokens(tiny: Tiny) -> None:
    model = tiny("llama").model
    off = steps(decode(model, PROMPT, max_new_tokens=5, trace=Trace("off")))
    full = steps(decode(model, PROMPT, max_new_tokens=5, trace=Trace("full", (0, 1))))
    assert [s.token_id for s in off] == [s.token_id for s in full]
    assert all(s.top == [] and s.stored == () and s.attention is None and s.gap != s.gap for s in off)


def test_attention_stops_at_the_cap(tiny: Tiny) -> None:
    model = tiny("llama").model
    one = 4 * len(PROMPT) * 4  # heads, positions, bytes
    items, end = drain(decode(model, PROMPT, max_new_tokens=4, trace=Trace("full", (0,), max_bytes=one)))
    assert [s.attention is not None for s in items[2:]] == [True, False, False, False]
    assert end.attention_capped


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "gemma3", "mistral", "mixtral"])
@pytest.mark.parametrize("level", ["light", "full"])
def test_mistakes_can_be_seen_from_what_is_observed(tiny: Tiny, kind: str, level: Any) -> None:
    model = tiny(kind).model
    prompt = [(11 * i) % 300 for i in range(12)]
    trace = Trace(level, (0,) if level == "full" else ())
    right = steps(decode(model, prompt, max_new_tokens=5, trace=trace))

    wrong = steps(decode(model, prompt, max_new_tokens=5, trace=trace, mistake="repeat_last_prompt_token"))
    assert wrong[0].token_id == right[0].token_id
    assert wrong[1].fed_token_id == prompt[-1]
    assert wrong[2].fed_token_id == wrong[1].token_id

    wrong = steps(decode(model, prompt, max_new_tokens=5, trace=trace, mistake="shift_positions"))
    assert [s.fed_position for s in wrong[1:]] == [s.fed_position + 1 for s in right[1:]]
    assert wrong[1].log_prob != pytest.approx(right[1].log_prob, abs=1e-6)

    items, end = drain(decode(model, prompt, max_new_tokens=5, trace=trace, mistake="drop_layer_cache"))
    dropped = end.dropped_layer
    assert dropped is not None
    assert items[-1].stored[dropped] < right[-1].stored[dropped]
    assert [n for i, n in enumerate(items[-1].stored) if i != dropped] == [
        n for i, n in enumerate(right[-1].stored) if i != dropped
    ]
    assert items[-1].log_prob != pytest.approx(right[-1].log_prob, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"prompt_ids": []}, "no tokens"),
        ({"prompt_ids": [1, 320]}, "Token 320 .* vocabulary of 320"),
        ({"prompt_ids": [-1]}, "Token -1"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"max_new_tokens": 510}, "6 prompt tokens and 510 new ones pass the model's context of 512"),
        ({"trace": Trace("full", (2,))}, "Layer 2 does not exist: this model has 2 layers"),
        ({"mistake": "everything"}, "mistake 'everything' is unknown"),
    ],
)
def test_bad_input_is_named(tiny: Tiny, change: dict[str, Any], named: str) -> None:
    arguments = {"prompt_ids": PROMPT, "max_new_tokens": 2, **change}
    with pytest.raises(BadInput, match=named):
        next(decode(tiny("llama").model, **arguments))


def test_the_fast_path_refuses_by_name_what_does_not_fit(tiny: Tiny) -> None:
    with pytest.raises(ModelError, match="GPT2LMHeadModel is not LlamaForCausalLM"):
        next(decode(tiny("gpt2").model, PROMPT, max_new_tokens=1, fast=True))
