"""Perplexity against transformers' own loss, divergence against scipy; each with a mutation that must fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from torch import nn

from lab.evaluation.divergence import Comparison, DenseReference, kl_divergence
from lab.evaluation.perplexity import Likelihood, Reader, chunks, measuring
from lab.evaluation.texts import Text
from lab.evaluation.tokens import Tokens, Windows, encode
from lab.models.shell import make_shell

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

Tiny = Callable[..., "LoadedModel"]
T = TypeVar("T")
KINDS = ["llama", "gpt2", "gemma3", "gemma2", "qwen2"]
TEXT = Text(
    "the model reads all the tokens of the cache, one layer after another, and keeps the values so far. " * 12, ""
)


def ended(steps: Generator[float, None, T]) -> tuple[T, list[float]]:
    shares = []
    while True:
        try:
            shares.append(next(steps))
        except StopIteration as end:
            return end.value, shares


def read(loaded: LoadedModel, most: int = 150) -> Tokens:
    return encode(loaded.tokenizer, TEXT, most)


def own_loss(model: Any, tokens: Tokens, size: int) -> tuple[float, float]:
    """transformers' loss over windows of `size`, as it shifts labels, and with labels shifted once too often."""
    total = wrong = 0.0
    count = wrong_count = 0
    with torch.inference_mode():
        for start in range(0, len(tokens), size):
            ids = torch.tensor([tokens.ids[start : start + size]])
            if ids.shape[1] < 3:
                continue
            total += float(model(input_ids=ids, labels=ids).loss) * (ids.shape[1] - 1)
            count += ids.shape[1] - 1
            wrong += float(model(input_ids=ids[:, :-1], labels=ids[:, 1:]).loss) * (ids.shape[1] - 2)
            wrong_count += ids.shape[1] - 2
    return total / count, wrong / wrong_count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [40, 64])
def test_perplexity_is_transformers_own(tiny: Tiny, kind: str, size: int) -> None:
    loaded = tiny(kind)
    tokens = read(loaded)
    found, shares = ended(measuring(loaded.model, tokens, Windows(size, size)))
    right, wrong = own_loss(loaded.model, tokens, size)
    assert found.mean_nll == pytest.approx(right, rel=2e-5)
    assert found.mean_nll != pytest.approx(wrong, rel=1e-3)
    assert found.perplexity == pytest.approx(math.exp(right), rel=1e-4)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_a_stride_gives_each_token_its_context(tiny: Tiny) -> None:
    """As transformers' guide: labels before the window's new tokens are -100."""
    loaded: Any = tiny("llama")
    tokens, size, stride = read(loaded), 48, 16
    total, count, done = 0.0, 0, 0
    with torch.inference_mode():
        for begin in range(0, len(tokens), stride):
            end = min(begin + size, len(tokens))
            ids = torch.tensor([tokens.ids[begin:end]])
            labels = ids.clone()
            labels[:, : done - begin] = -100
            scored = int((labels[:, 1:] != -100).sum())
            total += float(loaded.model(input_ids=ids, labels=labels).loss) * scored
            count, done = count + scored, end
            if end == len(tokens):
                break
    found, _ = ended(measuring(loaded.model, tokens, Windows(size, stride)))
    assert found.scored == count == len(tokens) - 1
    assert found.mean_nll == pytest.approx(total / count, rel=2e-5)
    apart, _ = ended(measuring(loaded.model, tokens, Windows(size, size)))
    assert apart.mean_nll != pytest.approx(found.mean_nll, rel=1e-4)


def test_a_prefix_is_read_and_not_scored(tiny: Tiny) -> None:
    loaded: Any = tiny("llama")
    plain = read(loaded, 30)
    tokens = Tokens(plain.ids, plain.bytes, (1,), plain.hash, plain.source)
    found, _ = ended(measuring(loaded.model, tokens, Windows(16, 16)))
    assert found.scored == 30
    with torch.inference_mode():
        losses = [
            float(loaded.model(input_ids=ids, labels=ids).loss) * (ids.shape[1] - 1)
            for ids in (torch.tensor([[1, *tokens.ids[s : s + 16]]]) for s in (0, 16))
        ]
    assert float(found.nll.sum()) == pytest.approx(sum(losses), rel=2e-5)
    assert found.bytes == sum(tokens.bytes)


def test_bits_per_byte_counts_bytes(tiny: Tiny) -> None:
    loaded = tiny("llama")
    tokens = read(loaded)
    found, _ = ended(measuring(loaded.model, tokens))
    assert found.bytes == sum(tokens.bytes[1:])
    expected = float(found.nll.double().sum()) / math.log(2) / found.bytes
    assert found.bits_per_byte == pytest.approx(expected)
    assert found.text_hash == tokens.hash


@pytest.mark.parametrize("count", [1, 2])
def test_a_text_of_one_token_has_no_perplexity(tiny: Tiny, count: int) -> None:
    loaded = tiny("llama")
    tokens = encode(loaded.tokenizer, Text("ab"[:count], "a test"), 5)
    assert len(tokens) == count
    found, _ = ended(DenseReference(loaded.model, tokens).comparing(loaded.model))
    if count == 1:
        assert (found.variant.perplexity, found.variant.bits_per_byte, found.mean_kl, found.agreement) == (None,) * 4
    else:
        assert found.variant.perplexity is not None
        assert found.mean_kl == 0.0


def test_a_perplexity_beyond_numbers_is_infinite() -> None:
    huge = Likelihood(torch.tensor([800.0]), torch.tensor([1]), 4, 2, "", Windows())
    assert huge.perplexity == math.inf


def test_a_perplexity_of_nan_stays_nan() -> None:
    broken = Likelihood(torch.tensor([1.0, torch.nan]), torch.tensor([1, 2]), 4, 3, "", Windows())
    assert broken.perplexity is not None
    assert math.isnan(broken.perplexity)


def changed(model: nn.Module) -> nn.Module:
    shell = make_shell(model)
    generator = torch.Generator().manual_seed(3)
    for name, module in shell.named_modules():
        if name.endswith(("down_proj", "c_proj")):
            weight: Any = module.weight
            noise = torch.randn(weight.shape, generator=generator)
            module.weight = nn.Parameter(weight + 0.1 * noise, requires_grad=False)
    return shell


@pytest.mark.parametrize("kind", KINDS)
def test_divergence_is_scipys(tiny: Tiny, kind: str) -> None:
    loaded = tiny(kind)
    tokens, variant = read(loaded, 60), changed(loaded.model)
    reference = DenseReference(loaded.model, tokens)
    for _ in range(2):  # with the dense model's own reading, and with what was kept of it
        found, shares = ended(reference.comparing(variant))
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1.0)
    ids = torch.tensor([tokens.ids])
    with torch.inference_mode():
        p, q = (m(input_ids=ids).logits[0, :-1].double().softmax(-1).numpy() for m in (loaded.model, variant))
    expected, other = entropy(p, q, axis=1), entropy(q, p, axis=1)
    assert np.allclose(found.kl.numpy(), expected, rtol=1e-3, atol=1e-6)
    assert not np.allclose(found.kl.numpy(), other, rtol=1e-2)
    assert found.mean_kl == pytest.approx(float(expected.mean()), rel=1e-4)
    assert found.agreement == pytest.approx(float((p.argmax(1) == q.argmax(1)).mean()))
    assert found.flips.tolist() == (np.flatnonzero(p.argmax(1) != q.argmax(1)) + 1).tolist()
    alone, _ = ended(measuring(variant, tokens))
    assert torch.equal(alone.nll, found.variant.nll)


def test_a_comparison_pauses_between_the_models_and_before_the_sum(tiny: Tiny) -> None:
    loaded = tiny("llama")
    reference = DenseReference(loaded.model, read(loaded, 60))
    ended(reference.reading())
    _, shares = ended(reference.comparing(changed(loaded.model)))
    assert len(shares) == 3  # one chunk: the variant's pass, the dense model's head, the divergence


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_does_not_diverge_from_itself(tiny: Tiny, kind: str) -> None:
    loaded = tiny(kind)
    reference = DenseReference(loaded.model, read(loaded))
    found, _ = ended(reference.comparing(make_shell(loaded.model)))
    assert float(found.kl.max()) == 0.0
    assert found.agreement == 1.0
    assert found.dense.perplexity == found.variant.perplexity


def test_the_direction_is_dense_to_variant() -> None:
    """p = (.9, .1), q = (.5, .5): KL(p || q) = .3681, KL(q || p) = .5108."""
    p, q = (torch.tensor([values]).log() for values in ([0.9, 0.1], [0.5, 0.5]))
    assert float(kl_divergence(p, q)) == pytest.approx(0.3681, abs=1e-4)
    assert float(kl_divergence(q, p)) == pytest.approx(0.5108, abs=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 30.0])
def test_divergence_stays_exact_over_many_tokens(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(3, 49_152, generator=generator)
    other = logits + scale * torch.randn(3, 49_152, generator=generator)
    found = kl_divergence(logits.log_softmax(-1), other.log_softmax(-1))
    expected = entropy(logits.double().softmax(-1).numpy(), other.double().softmax(-1).numpy(), axis=1)
    assert np.allclose(found.numpy(), expected, rtol=1e-3, atol=1e-7)


def test_impossible_tokens_are_no_nan() -> None:
    p = torch.tensor([[0.0, -torch.inf]])
    assert float(kl_divergence(p, torch.tensor([[0.5, 0.5]]).log())) == pytest.approx(math.log(2))
    assert float(kl_divergence(p, p)) == 0.0
    assert float(kl_divergence(torch.tensor([[0.5, 0.5]]).log(), p)) == math.inf


def test_logits_are_never_all_there_at_once(tiny: Tiny) -> None:
    loaded = tiny("llama")
    reader = Reader(loaded.model, read(loaded), Windows(400, 400))
    sizes = [len(chunk.ids) for chunk in chunks(read(loaded, 400), Windows(400, 400), reader.size)]
    assert max(sizes) <= 128
    assert sum(sizes) == len(read(loaded, 400)) - 1


def test_pairs_of_runs_do_not_disturb_each_other(tiny: Tiny) -> None:
    loaded = tiny("llama")
    tokens, variant = read(loaded, 300), changed(loaded.model)
    runs = [DenseReference(loaded.model, tokens, Windows(64, 32)).comparing(variant) for _ in range(2)]
    results: dict[int, Comparison] = {}
    while len(results) < 2:
        for index, run in enumerate(runs):
            if index not in results:
                try:
                    next(run)
                except StopIteration as end:
                    results[index] = end.value
    alone, _ = ended(DenseReference(loaded.model, tokens, Windows(64, 32)).comparing(variant))
    assert all(torch.equal(result.kl, alone.kl) for result in results.values())


@pytest.mark.model
def test_on_the_packaged_model(packaged_model: LoadedModel) -> None:
    tokens = read(packaged_model, 100)
    found, _ = ended(DenseReference(packaged_model.model, tokens).comparing(packaged_model.model))
    right, _ = own_loss(packaged_model.model, tokens, 512)
    assert found.variant.mean_nll == pytest.approx(right, rel=1e-4)
    assert found.mean_kl == 0.0
