"""The experiment against transformers itself, on tiny models of every supported kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from kv_cache_runs import Ran, run_to_end
from transformers import DynamicCache, GenerationConfig, StaticCache

from lab.decoding.llama import LlamaPass
from lab.decoding.loop import decode
from lab.events import ArrayData
from lab.events.decoding import PrefillChunk, PromptEncoded
from lab.events.kv_cache import AttentionRead, CacheLedger, TokenDecoded, UncachedToken
from lab.kv_cache.formula import LayerShape, cache_dtype, computations, layer_shapes
from lab.kv_cache.ledger import read_ledger
from lab.models.shell import make_shell

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]

KINDS = ("llama", "gpt2", "qwen2", "qwen3", "gemma2", "gemma3", "mistral", "mixtral")
OWN_HEAD_DIM = ("qwen3", "gemma2", "gemma3")
WINDOWED = {"gemma2": 8, "gemma3": 8, "mistral": 8}
FP32 = cache_dtype("float32")
PROMPT = "the cache keeps the keys"


def _plain_cache(loaded: LoadedModel, ids: list[int]) -> DynamicCache:
    """transformers' own cache after `ids` went through one by one, without any code of the lab."""
    cache = DynamicCache(config=loaded.model.config)
    with torch.inference_mode():
        for token in ids:
            loaded.model(torch.tensor([[token]]), cache=cache, use_cache=True)
    return cache


def _tensor_bytes(cache: Any) -> list[int]:
    return [
        layer.keys.numel() * layer.keys.element_size() + layer.values.numel() * layer.values.element_size()
        for layer in cache.layers
    ]


def _formula(shapes: Iterable[LayerShape], length: int, keeping: str = "dynamic") -> list[int]:
    return [s.bytes(length, FP32, keeping=keeping) for s in shapes]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 16])
def test_formula_and_ledger_are_the_tensors_of_transformers(tiny: Tiny, kind: str, length: int) -> None:
    loaded = tiny(kind)
    ids = [(3 + 7 * i) % 300 for i in range(length)]
    expected = _tensor_bytes(_plain_cache(loaded, ids))
    assert _formula(layer_shapes(loaded.facts), length) == expected
    for item in decode(loaded.model, ids, max_new_tokens=1):
        cache = item.cache if item is not None else None
    assert cache is not None
    rows = read_ledger(cache, layer_shapes(loaded.facts), length, torch.float32)
    assert [row.bytes for row in rows] == [row.formula_bytes for row in rows] == expected
    assert [row.positions for row in rows] == [row.expected_positions for row in rows]
    assert all(row.reserved_bytes >= row.bytes for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_usual_mistakes_of_cache_calculators_would_not_pass(tiny: Tiny, kind: str) -> None:
    loaded = tiny(kind)
    facts, shapes = loaded.facts, layer_shapes(loaded.facts)
    expected = _tensor_bytes(_plain_cache(loaded, [(3 + 7 * i) % 300 for i in range(20)]))
    if facts.query_heads != facts.kv_heads:
        assert _formula([replace(s, kv_heads=facts.query_heads) for s in shapes], 20) != expected, "query heads"
    guess = facts.hidden // facts.query_heads
    assert (_formula([replace(s, head_dim=guess) for s in shapes], 20) != expected) == (kind in OWN_HEAD_DIM)
    assert (_formula(shapes, 20, "everything") != expected) == (kind in WINDOWED)
    assert (_formula(shapes, 20, "visible") != expected) == (kind in WINDOWED), "W and W - 1 are not the same"


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mistral"])
@pytest.mark.parametrize("room", [4, 8, 20])
def test_the_static_rule_is_that_of_static_caches(tiny: Tiny, kind: str, room: int) -> None:
    loaded = tiny(kind)
    cache = StaticCache(config=loaded.model.config, max_cache_len=room)
    with torch.inference_mode():
        loaded.model(torch.tensor([[5]]), cache=cache, use_cache=True)
    assert _tensor_bytes(cache) == _formula(layer_shapes(loaded.facts), room, "static")


def _generate(loaded: LoadedModel, ids: tuple[int, ...], new: int, **sampling: Any) -> list[int]:
    model = make_shell(loaded.model)
    model.generation_config = GenerationConfig()
    prompt = torch.tensor([ids])
    config = GenerationConfig(
        max_new_tokens=new,
        eos_token_id=sorted(loaded.end_token_ids) or None,
        pad_token_id=0,
        do_sample=bool(sampling),
        **{k: v for k, v in sampling.items() if k != "seed"},
    )
    if sampling:
        torch.manual_seed(sampling["seed"])
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    return [int(t) for t in out[0, len(ids) :]]


def _check_run(ran: Ran, loaded: LoadedModel) -> None:
    """What holds for every good run."""
    prompt = ran.of(PromptEncoded)[0]
    tokens, twins, ledgers = ran.of(TokenDecoded), ran.of(UncachedToken), ran.of(CacheLedger)
    n = len(prompt.token_ids)
    assert ran.proof.verdict == "equal", ran.proof
    assert [t.token_id for t in tokens] == list(ran.outcome.token_ids)
    assert [t.token_id for t in twins] == [t.token_id for t in tokens][: len(twins)]
    assert "".join(t.text for t in tokens) == ran.outcome.text
    assert sum(t.computed for t in tokens) == computations(n, len(tokens), cached=True)
    assert sum(t.computed for t in twins) == computations(n, len(twins), cached=False)
    assert sum(c.stop - c.start for c in ran.of(PrefillChunk)) == n
    for ledger in ledgers:
        assert ledger.layer_bytes == ledger.formula_bytes
        assert ledger.reserved_bytes >= sum(ledger.layer_bytes)
    assert [c.index for c in ledgers if c.phase == "decode"] == list(range(1, len(tokens)))
    assert ledgers[-1].cache_length == n + len(tokens) - 1
    plain = _plain_cache(loaded, [*prompt.token_ids, *ran.outcome.token_ids[:-1]])
    assert list(ledgers[-1].layer_bytes) == _tensor_bytes(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_generate_and_the_run_without_a_cache(tiny: Tiny, kind: str) -> None:
    loaded = tiny(kind)
    ran = run_to_end(loaded, prompt=PROMPT, max_new_tokens=20, without_cache_tokens=20)
    _check_run(ran, loaded)
    assert list(ran.outcome.token_ids) == _generate(loaded, ran.of(PromptEncoded)[0].token_ids, 20)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
def test_sampling_is_generate_with_the_seed(tiny: Tiny, kind: str) -> None:
    loaded = tiny(kind)
    drawn = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "seed": 11}
    state = torch.get_rng_state()
    ran = run_to_end(loaded, prompt=PROMPT, max_new_tokens=20, without_cache_tokens=6, do_sample=True, **drawn)
    assert torch.equal(state, torch.get_rng_state()), "the global random state belongs to nobody"
    _check_run(ran, loaded)
    assert list(ran.outcome.token_ids) == _generate(loaded, ran.of(PromptEncoded)[0].token_ids, 20, **drawn)
    again = run_to_end(loaded, prompt=PROMPT, max_new_tokens=20, do_sample=True, **{**drawn, "seed": 12})
    assert again.outcome.token_ids != ran.outcome.token_ids


def test_a_prompt_of_several_chunks(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LlamaPass, "chunk", 100)
    for kind in ("llama", "gemma3"):
        loaded = tiny(kind)
        ran = run_to_end(loaded, prompt=PROMPT * 60, max_new_tokens=6, without_cache_tokens=2)
        assert len(ran.of(PrefillChunk)) > 1
        _check_run(ran, loaded)


@pytest.mark.parametrize(
    ("mistake", "finding"),
    [("repeat_last_prompt_token", "token"), ("shift_positions", "position"), ("drop_layer_cache", "cache")],
)
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3", "mistral"])
def test_each_mistake_turns_the_proof_red_and_is_named(tiny: Tiny, kind: str, mistake: str, finding: str) -> None:
    ran = run_to_end(tiny(kind), prompt=PROMPT, max_new_tokens=16, without_cache_tokens=4, break_run=mistake)
    assert ran.proof.verdict == "different"
    assert [f["kind"] for f in ran.proof.detail["findings"]] == [finding]
    assert ran.proof.detail["findings"][0]["words"] in ran.proof.explanation


def _full_forward(loaded: LoadedModel, ids: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(position, vocab) log-probabilities and each layer's (head, position, position) attention, from scratch."""
    shell = make_shell(loaded.model)
    shell.set_attn_implementation("eager")
    with torch.inference_mode():
        out = shell(torch.tensor([ids]), output_attentions=True, use_cache=False)
    return out.logits[0].float().log_softmax(-1), [a[0].float() for a in out.attentions]


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_and_attention_are_those_of_a_full_forward(tiny: Tiny, kind: str) -> None:
    """Cases K11 (cache against no cache, 1e-4) and A5 (over the whole vocabulary)."""
    loaded = tiny(kind)
    layers = tuple(range(len(loaded.facts.layers)))[:8]
    ran = run_to_end(loaded, prompt=PROMPT, max_new_tokens=14, without_cache_tokens=0, trace_layers=layers)
    prompt = list(ran.of(PromptEncoded)[0].token_ids)
    tokens = list(ran.outcome.token_ids)
    log_probs, attention = _full_forward(loaded, prompt + tokens)
    for event in ran.of(TokenDecoded):
        at = len(prompt) + event.index - 1
        assert event.log_prob == pytest.approx(float(log_probs[at, event.token_id]), abs=1e-4)
        best = log_probs[at].topk(len(event.top))
        assert [c.log_prob for c in event.top] == pytest.approx(best.values.tolist(), abs=1e-4)
        narrow = best.values.log_softmax(-1)
        assert [c.log_prob for c in event.top] != pytest.approx(narrow.tolist(), abs=1e-4), "re-normalised"
    for read in ran.of(AttentionRead):
        at = len(prompt) + read.index - 1
        assert read.bin_size == 1
        assert read.first_position + read.positions == at + 1
        rows = torch.stack([attention[k][:, at, read.first_position : at + 1] for k in read.layers])
        assert torch.allclose(torch.tensor(read.weights.numpy().astype("float32")), rows, atol=1e-3)
    for index in (1, 5, len(tokens) - 1):
        at = len(prompt) + index - 1
        for layer in layers:
            for head in (0, loaded.facts.query_heads - 1):
                answer = ran.ask("attention", index=index, layer=layer, head=head)
                weights, first = _weights(answer), answer["first_position"]
                assert first + answer["positions"] == at + 1
                assert torch.allclose(weights, attention[layer][head, at, first : at + 1], atol=1e-5)
                assert float(attention[layer][head, at, :first].sum()) == 0.0, "nothing is left out"
                later = attention[layer][head, at + 1, first : at + 1]
                assert not torch.allclose(weights, later, atol=1e-5), "another row would not pass"


def _weights(answer: dict[str, Any]) -> torch.Tensor:
    assert isinstance(answer["weights"], ArrayData)
    return torch.tensor(answer["weights"].numpy())


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_the_first_tokens_attention_can_be_asked(tiny: Tiny, kind: str) -> None:
    loaded = tiny(kind)
    ran = run_to_end(loaded, prompt=PROMPT, max_new_tokens=3, without_cache_tokens=0)
    prompt = list(ran.of(PromptEncoded)[0].token_ids)
    _, attention = _full_forward(loaded, prompt)
    assert torch.allclose(_weights(ran.ask("attention", index=0, layer=1, head=2)), attention[1][2, -1], atol=1e-5)


@pytest.mark.parametrize("mistake", ["repeat_last_prompt_token", "shift_positions", "drop_layer_cache"])
def test_a_broken_run_answers_with_what_it_read(tiny: Tiny, mistake: str) -> None:
    loaded = tiny("llama", num_hidden_layers=4)
    ran = run_to_end(loaded, prompt=PROMPT, max_new_tokens=8, break_run=mistake, trace_layers=(0, 1, 2, 3))
    for read in ran.of(AttentionRead)[1:]:
        recorded = torch.tensor(read.weights.numpy().astype("float32"))
        for k in range(4):
            answer = ran.ask("attention", index=read.index, layer=k, head=1)
            weights = _weights(answer)
            assert torch.allclose(recorded[k, 1, -weights.shape[0] :], weights, atol=1e-3)
