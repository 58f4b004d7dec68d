"""The token loop against transformers: logits, tokens, draws and attention weights, on every supported kind."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from lab.decoding.choose_pass import choose_pass
from lab.decoding.loop import Decoded, Step, decode, decode_uncached
from lab.decoding.passes import shell_of
from lab.decoding.sampling import Sampling
from lab.decoding.trace import Trace

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
KINDS = ("llama", "gpt2", "qwen2", "qwen3", "gemma2", "gemma3", "mistral", "mixtral")
WINDOW = 8
LENGTHS = (1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW)


def _ids(length: int) -> list[int]:
    return [(3 + 7 * i) % 300 for i in range(length)]


def _finish(run: Generator[Any, None, Decoded]) -> tuple[list[Step], Decoded]:
    steps = []
    while True:
        try:
            item = next(run)
        except StopIteration as stop:
            return steps, stop.value
        if isinstance(item, Step):
            steps.append(item)


def _uncached_logits(model: nn.Module, ids: list[int]) -> Tensor:
    """(position, vocab): one full forward without any cache, by transformers alone."""
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([ids]), use_cache=False).logits[0]
    return logits


def _generate(model: Any, ids: list[int], new: int, **options: Any) -> list[int]:
    tokens = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=new,
        pad_token_id=0,
        eos_token_id=None,
        **options,
    )
    return [int(t) for t in tokens[0, len(ids) :]]


def _cached_logits(model: nn.Module, ids: list[int], prefill: int, *, fast: bool | None) -> tuple[Tensor, str]:
    """(position, vocab) from position prefill - 1 on: a chunk of `prefill` tokens, then one at a time."""
    runner = choose_pass(model, len(ids), layers=(), fast=fast, mistake="nothing")
    rows = []
    with torch.inference_mode():
        for start, stop in [(0, prefill), *((i, i + 1) for i in range(prefill, len(ids)))]:
            row = runner(ids[start:stop], start, last=True, attention=False)
            assert row is not None
            rows.append(row.clone())  # the next call may write over it
    return torch.stack(rows), runner.name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fast", [None, False])
@pytest.mark.parametrize("prefill", LENGTHS)
def test_logits_with_the_cache_equal_a_full_forward(tiny: Tiny, kind: str, fast: bool | None, prefill: int) -> None:
    model = tiny(kind).model
    ids = _ids(2 * WINDOW + 3)
    expected = _uncached_logits(model, ids)[prefill - 1 :]
    got, path = _cached_logits(model, ids, prefill, fast=fast)
    assert path == ("llama" if kind == "llama" and fast is None else "transformers")
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)
    # The mutation: a position that is off by one is far outside the tolerance.
    runner = choose_pass(model, len(ids), layers=(), fast=fast, mistake="nothing")
    with torch.inference_mode():
        for position, token in enumerate(ids):
            wrong = runner((token,), position + (position > WINDOW), last=True, attention=False)
    assert wrong is not None
    assert float((wrong - expected[-1]).abs().max()) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, WINDOW, 2 * WINDOW])
def test_tokens_equal_generate_with_and_without_the_cache(tiny: Tiny, kind: str, length: int) -> None:
    model = tiny(kind).model
    ids = _ids(length)
    for options in (
        {"do_sample": False},
        {"do_sample": True, "temperature": 1.4, "top_k": 40, "top_p": 0.9},
        {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0},
    ):
        with torch.random.fork_rng():
            torch.manual_seed(11)
            expected = _generate(model, ids, 12, **options)
        sampling = Sampling(seed=11, **options)  # type: ignore[arg-type]
        for fast in (None, False):
            _, end = _finish(decode(model, ids, max_new_tokens=12, sampling=sampling, fast=fast))
            assert end.token_ids == expected
            _, end = _finish(decode_uncached(model, ids, max_new_tokens=12, sampling=sampling, fast=fast))
            assert end.token_ids == expected
        if options["do_sample"]:  # the mutation: another seed draws other tokens
            other = Sampling(seed=12, **options)  # type: ignore[arg-type]
            assert _finish(decode(model, ids, max_new_tokens=12, sampling=other))[1].token_ids != expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW + 1, 2 * WINDOW])
@pytest.mark.parametrize("fast", [None, False])
def test_attention_weights_equal_the_eager_implementation(
    tiny: Tiny, kind: str, length: int, fast: bool | None
) -> None:
    loaded = tiny(kind)
    layers = (0, len(loaded.facts.layers) - 1)
    steps, end = _finish(decode(loaded.model, _ids(length), max_new_tokens=6, trace=Trace("full", layers), fast=fast))
    eager: Any = shell_of(loaded.model)
    eager.set_attn_implementation("eager")
    for step in steps:
        ids = [*_ids(length), *end.token_ids[: step.index]]
        with torch.inference_mode():
            whole = eager(torch.tensor([ids]), use_cache=False, output_attentions=True).attentions
        expected = torch.stack([whole[layer][0, :, -1] for layer in layers])
        assert step.attention is not None
        seen = step.attention.shape[-1]
        torch.testing.assert_close(step.attention, expected[..., -seen:], atol=1e-5, rtol=0)
        assert float(expected[..., :-seen].abs().sum()) == 0 or seen == len(ids)
        torch.testing.assert_close(step.attention.sum(-1), torch.ones(step.attention.shape[:2]), atol=1e-5, rtol=0)
    # The mutation: the weights of one step are not those of another.
    assert steps[0].attention is not None
    assert steps[1].attention is not None
    both = min(step.attention.shape[-1] for step in steps[:2])  # type: ignore[union-attr]
    if both > 1:
        assert float((steps[1].attention[..., -both:] - steps[0].attention[..., -both:]).abs().max()) > 1e-3


class Doubled(nn.Module):
    """A replaced linear module, as a quantized or adapted one would be."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.out_features = inner.out_features

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = 2 * self.inner(x)
        return out


def _replace(layer: Any) -> None:
    layer.mlp.up_proj = Doubled(layer.mlp.up_proj)


def _replace_out(layer: Any) -> None:
    layer.self_attn.o_proj = Doubled(layer.self_attn.o_proj)


def _reweigh(layer: Any) -> None:
    layer.self_attn.v_proj.weight = nn.Parameter(layer.self_attn.v_proj.weight * -1.5)


def _bias(layer: Any) -> None:
    down = layer.mlp.down_proj
    down.bias = nn.Parameter(torch.linspace(-1, 1, down.out_features))
    layer.self_attn.k_proj.bias = nn.Parameter(torch.linspace(-2, 2, layer.self_attn.k_proj.out_features))


def _hook_linear(layer: Any) -> None:
    layer.self_attn.q_proj.register_forward_hook(lambda module, args, output: output * 0.5)  # noqa: ARG005


def _hook_attention(layer: Any) -> None:
    layer.self_attn.register_forward_hook(lambda module, args, output: (output[0] * 0.5, output[1]))  # noqa: ARG005


def _forward(layer: Any) -> None:
    layer.mlp.forward = lambda x: x


def _epsilon(layer: Any) -> None:
    layer.input_layernorm.variance_epsilon = 0.5


def _norm(layer: Any) -> None:
    layer.post_attention_layernorm.weight = nn.Parameter(layer.post_attention_layernorm.weight + 1)


def _scaling(layer: Any) -> None:
    layer.self_attn.scaling *= 2


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("change", "path"),
    [
        (_replace, "llama"),
        (_replace_out, "llama"),
        (_reweigh, "llama"),
        (_bias, "llama"),
        (_hook_linear, "llama"),
        (_norm, "llama"),
        (_hook_attention, "transformers"),
        (_forward, "transformers"),
        (_epsilon, "transformers"),
        (_scaling, "transformers"),
    ],
)
def test_the_fast_path_follows_a_changed_shell(
    tiny: Tiny, change: Callable[[Any], None], path: str, tied: bool
) -> None:
    model = tiny("llama", tie_word_embeddings=tied).model
    ids = _ids(12)
    shell: Any = shell_of(model)
    change(shell.model.layers[1])
    expected = _uncached_logits(shell, ids)
    for prefill in (1, 5):
        got, taken = _cached_logits(shell, ids, prefill, fast=None)
        assert taken == path
        torch.testing.assert_close(got, expected[prefill - 1 :], atol=1e-4, rtol=0)
    # The mutation, and the model's own weights: the plain model says something else, before and after.
    plain, _ = _cached_logits(model, ids, 5, fast=True)
    assert float((plain - expected[4:]).abs().max()) > 1e-3
    torch.testing.assert_close(plain, _uncached_logits(model, ids)[4:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("fast", [None, False])
def test_a_traced_run_on_a_hooked_shell_keeps_the_hooks(tiny: Tiny, fast: bool | None) -> None:
    shell: Any = shell_of(tiny("llama").model)
    shell.model.layers[0].mlp.register_forward_hook(lambda module, args, output: output * 0)  # noqa: ARG005
    traced, _ = _finish(decode(shell, _ids(9), max_new_tokens=4, trace=Trace("full", (0, 1)), fast=fast))
    expected = float(_uncached_logits(shell, _ids(9))[-1].log_softmax(-1).max())
    assert traced[0].log_prob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        {"attention_bias": True, "mlp_bias": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "head_dim": 16},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
        {"intermediate_size": 72, "hidden_size": 36, "num_attention_heads": 6, "head_dim": 6},
    ],
)
def test_the_fast_path_on_other_shapes(tiny: Tiny, config: dict[str, Any]) -> None:
    model: Any = tiny("llama", **config).model
    ids = _ids(20)
    got, path = _cached_logits(model, ids, 7, fast=True)
    assert path == "llama"
    torch.testing.assert_close(got, _uncached_logits(model, ids)[6:], atol=1e-4, rtol=0)


def test_bfloat16_stays_close_to_transformers(tiny: Tiny) -> None:
    model = tiny("llama", dtype="bfloat16").model
    ids = _ids(14)
    expected = _uncached_logits(model, ids).float()[5:]
    got, _ = _cached_logits(model, ids, 6, fast=True)
    assert got.dtype == torch.float32
    assert float((got - expected).abs().max()) < 0.1 * float(expected.abs().max())
