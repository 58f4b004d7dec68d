"""What a quantized cache does to the words: dense and quantized side by side, token by token."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from lab.decoding import cache_layout
from lab.decoding.passes import TransformersPass
from lab.errors import BadInput
from lab.quantization.kv_layer import cache_bytes, quantized_cache, quantized_layers, settling
from lab.quantization.kv_scheme import KvBytes, KvScheme

WIDENED_FROM = 768
"""Positions beyond which widening all codes at each token would make a step too long a slice."""


@dataclass(frozen=True)
class KvStep:
    """One new token.

    Attributes:
        index: 0 for the first.
        dense_id: greedy, with the dense cache.
        same_text_id: greedy with the quantized cache, after the dense run's own tokens.
        own_text_id: greedy with the quantized cache, after its own tokens; -1 once that run has ended.
        kl: KL(dense || quantized) of the next token after the dense run's tokens, nats.
        largest: the largest difference of two logits there.
        gap: difference of the two largest dense logits: how close the call was.
        bytes: of the quantized cache now.
    """

    index: int
    dense_id: int
    same_text_id: int
    own_text_id: int
    kl: float
    largest: float
    gap: float
    bytes: KvBytes


@dataclass(frozen=True)
class KvCompared:
    """The end of a comparison.

    Attributes:
        dense_ids, own_ids: new tokens of both greedy runs.
        mean_kl: over the steps, nats.
        agreement: share of steps at which both would choose the same token after the same text.
        first_difference: the first index at which the runs' own tokens differ; None if they never do.
        bytes: of the quantized cache after the dense run's last token went in.
        layer_bytes: of each quantized layer.
        prefill_bytes: the most that was held while the prompt was read dense.
        widened: whether what the codes say was kept beside them, so that this run saved no memory. `bytes` are those
            of codes, scales and dense positions all the same.
    """

    dense_ids: tuple[int, ...]
    own_ids: tuple[int, ...]
    mean_kl: float
    agreement: float
    first_difference: int | None
    bytes: KvBytes
    layer_bytes: tuple[int, ...]
    prefill_bytes: int
    widened: bool


def compare_kv(
    model: nn.Module,
    prompt_ids: Sequence[int],
    scheme: KvScheme,
    *,
    max_new_tokens: int,
    end_token_ids: Sequence[int] = (),
) -> Generator[KvStep | None, None, KvCompared]:
    """Continue a prompt greedily with a dense and with a quantized cache, through transformers' own forward.

    The prompt is read dense and then quantized, as KIVI does and as `generate()` does with `quantized_cache`.

    Args:
        model: a causal model with full attention in some layers; not changed.
        end_token_ids: a run stops after any of these; the comparison lasts as long as the dense run.

    Yields:
        None after each piece of work, then a `KvStep` for each token.

    Raises:
        BadInput: an empty prompt, or no new tokens.
        ModelError: no key/value cache that can be quantized.
    """
    if not prompt_ids or max_new_tokens < 1:
        raise BadInput(
            f"A comparison needs a prompt and new tokens, got {len(prompt_ids)} and {max_new_tokens}.",
            remedy="Give at least one of each.",
        )
    ends = frozenset(end_token_ids)
    dense = TransformersPass(model, len(prompt_ids) + max_new_tokens)
    same = TransformersPass(model, 1)
    widened = len(prompt_ids) + max_new_tokens > WIDENED_FROM
    same.cache = quantized_cache(model, scheme, keep_widened=widened)
    for layer in quantized_layers(same.cache):
        layer.hold = True
    exact = yield from _prefill(dense, prompt_ids)
    found = yield from _prefill(same, prompt_ids)
    prefill_bytes = cache_bytes(same.cache).total
    yield from settling(same.cache)

    own: TransformersPass | None = None
    own_row = found
    dense_ids: list[int] = []
    own_ids: list[int] = []
    agreed, total_kl = 0, 0.0
    while True:
        with torch.inference_mode():
            step = _step(exact, found, len(dense_ids), cache_bytes(same.cache))
            ended = bool(own_ids) and own_ids[-1] in ends
            own_id = -1 if ended else int((found if own is None else own_row).argmax())
        step = replace(step, own_text_id=own_id)
        if own is None and not ended and own_id != step.dense_id:
            # Until here both read the same text: the run of its own goes on with a copy of the cache.
            own = TransformersPass(model, 1)
            own.cache = _copy(same.cache)
        dense_ids.append(step.dense_id)
        own_ids += [own_id] if own_id >= 0 else []
        agreed += step.dense_id == step.same_text_id
        total_kl += step.kl
        yield step
        if step.dense_id in ends or len(dense_ids) >= max_new_tokens:
            break
        position = len(prompt_ids) + step.index
        exact = _next(dense, step.dense_id, position)
        yield None
        found = _next(same, step.dense_id, position)
        if own is not None and own_id >= 0 and own_id not in ends:
            yield None
            own_row = _next(own, own_id, position)
    different = [i for i, (a, b) in enumerate(zip(dense_ids, own_ids, strict=False)) if a != b]
    if not different and len(dense_ids) != len(own_ids):
        different = [min(len(dense_ids), len(own_ids))]
    return KvCompared(
        dense_ids=tuple(dense_ids),
        own_ids=tuple(own_ids),
        mean_kl=total_kl / len(dense_ids),
        agreement=agreed / len(dense_ids),
        first_difference=different[0] if different else None,
        bytes=cache_bytes(same.cache),
        layer_bytes=tuple(layer.stored_bytes.total for layer in quantized_layers(same.cache)),
        prefill_bytes=prefill_bytes,
        widened=widened,
    )


def _prefill(runner: TransformersPass, ids: Sequence[int]) -> Generator[None, None, Tensor]:
    row: Tensor | None = None
    for start in range(0, len(ids), runner.chunk):
        stop = min(start + runner.chunk, len(ids))
        row = yield from runner.sliced(ids[start:stop], start, last=stop == len(ids), attention=False)
        yield None
    assert row is not None  # noqa: S101 - asked for with last=True
    return row


def _next(runner: TransformersPass, token: int, position: int) -> Tensor:
    with torch.inference_mode():
        row = runner((token,), position, last=True, attention=False)
    assert row is not None  # noqa: S101 - asked for with last=True
    return row


def _step(exact: Tensor, found: Tensor, index: int, held: KvBytes) -> KvStep:
    p, q = exact.double().log_softmax(0), found.double().log_softmax(0)
    best = torch.topk(exact, min(2, exact.numel())).values
    return KvStep(
        index=index,
        dense_id=int(exact.argmax()),
        same_text_id=int(found.argmax()),
        own_text_id=-1,
        kl=max(0.0, float((p.exp() * (p - q)).sum())),
        largest=float((exact - found).abs().max()),
        gap=float(best[0] - best[-1]) if best.numel() > 1 else float("inf"),
        bytes=held,
    )


def _copy(cache: Cache) -> Cache:
    copied: Any = copy.copy(cache)
    # Layers replace their tensors at each update, so a copy of the layers is enough. (Sliding ones do so too.)
    copied.layers = cache_layout.snapshot(cache)
    return copied  # type: ignore[no-any-return]
