"""The token loop: prefill in chunks, then one token a step, with the cache or with nothing remembered.

Both are generators for a cooperative scheduler. `inference_mode` is entered and left inside each slice, so
that nothing leaks to whoever runs between two of them, and each run draws from a generator of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from lab.decoding import cache_layout
from lab.decoding.choose_pass import choose_pass
from lab.decoding.passes import Pass
from lab.decoding.sampling import Sampling, choose
from lab.decoding.trace import Trace
from lab.errors import BadInput

CHUNK = 128
"""Prompt tokens in one prefill pass, at most."""

Mistake = Literal["nothing", "repeat_last_prompt_token", "shift_positions", "drop_layer_cache"]


@dataclass(frozen=True)
class Prefilled:
    """Prompt positions start..stop-1 went through the layers in `ms` milliseconds.

    `cache` is the run's own, live: read it before the next step and do not change it.
    """

    start: int
    stop: int
    ms: float
    cache: Cache


@dataclass
class Step:
    """One new token.

    Attributes:
        index: 0 for the first new token, which comes out of the prefill.
        log_prob: of the token, after temperature and before top-k and top-p; NaN at trace level "off".
        gap: difference of the two largest logits, before temperature; NaN at level "off".
        top: the most probable tokens with their log-probabilities, likewise; empty at level "off".
        ms: own compute, milliseconds. For index 0 with the cache: the choice alone.
        computed: tokens that went through the layers for this one; for index 0 the whole prompt.
        fed_token_id: the last token that went through the layers.
        fed_position: the position it was given.
        stored: for each layer, how many positions its cache holds now; empty at level "off".
        attention: (layer, head, position) fp32 on the CPU, the newest position's weights in the traced layers,
            only at level "full" and while the trace's cap is not reached. The last position is the
            newest; positions that a layer no longer holds are 0.
        cache: the run's own, live: read it before the next step and do not change it. None without a cache.
    """

    index: int
    token_id: int
    log_prob: float
    gap: float
    top: list[tuple[int, float]]
    ms: float
    computed: int
    fed_token_id: int
    fed_position: int
    stored: tuple[int, ...] = ()
    attention: Tensor | None = None
    cache: Cache | None = None


@dataclass
class Decoded:
    """The end of a run.

    Attributes:
        token_ids: the new tokens, the end token included if one came.
        cache: what the layers remember, for `cache_layout.layer_tensors`; None without a cache.
        path: "llama" for the fast path, "transformers" for the model's own forward.
        dropped_layer: the layer emptied on purpose, if one was.
        attention_capped: whether attention weights were left out because the trace's cap was reached.
    """

    token_ids: list[int]
    cache: Cache | None
    path: str
    dropped_layer: int | None = None
    attention_capped: bool = False


@dataclass
class _Choice:
    """The half that both loops share: from logits to a `Step`."""

    sampling: Sampling
    trace: Trace
    generator: torch.Generator | None
    attention_bytes: int = 0
    capped: bool = False
    token_ids: list[int] = field(default_factory=list)

    def step(self, logits: Tensor, runner: Pass, fed: tuple[int, int], computed: int) -> Step:
        """Choose a token. `ms` is left 0 for the caller. Must run inside inference mode."""
        token, scaled = choose(logits, self.sampling, self.generator)
        index, (fed_id, position) = len(self.token_ids), fed
        nan = float("nan")
        step = Step(index, 0, nan, nan, [], 0.0, computed, fed_id, position)
        if self.trace.level == "off":
            step.token_id = int(token.item())
        else:
            self._describe(step, logits, scaled, token)
            step.stored = cache_layout.stored_lengths(runner.cache)
            step.attention = self._attention(runner)
        self.token_ids.append(step.token_id)
        return step

    def _describe(self, step: Step, logits: Tensor, scaled: Tensor, token: Tensor) -> None:
        k = min(max(self.trace.top, 2), logits.shape[0])
        best = torch.topk(scaled, k)
        # One transfer a step; float64 holds token ids and fp32 numbers exactly.
        numbers = torch.cat((best.values, scaled[token], scaled.logsumexp(0, keepdim=True)))
        ids = torch.cat((best.indices, token))
        flat = torch.cat((numbers.double(), ids.double())).tolist()
        values, chosen, total = flat[:k], flat[k], flat[k + 1]
        scale = self.sampling.temperature if self.sampling.do_sample else 1.0
        step.token_id = int(flat[-1])
        step.log_prob = chosen - total
        step.gap = (values[0] - values[1]) * scale if k > 1 else float("inf")
        step.top = [(int(i), v - total) for i, v in zip(flat[k + 2 : -1], values, strict=True)][: self.trace.top]

    def _attention(self, runner: Pass) -> Tensor | None:
        if not self.trace.attention_layers or self.capped:
            return None
        rows = runner.take_attention()
        longest = max(row.shape[1] for row in rows)
        size = sum(row.shape[0] for row in rows) * longest * 4
        if self.attention_bytes + size > self.trace.max_bytes:
            self.capped = True
            return None
        self.attention_bytes += size
        if any(row.shape[1] != longest for row in rows):
            rows = [torch.nn.functional.pad(row, (longest - row.shape[1], 0)) for row in rows]
        return torch.stack(rows).cpu()

    @property
    def wants_attention(self) -> bool:
        return bool(self.trace.attention_layers) and not self.capped


def decode(
    model: nn.Module,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    end_token_ids: Sequence[int] = (),
    sampling: Sampling | None = None,
    trace: Trace | None = None,
    mistake: Mistake = "nothing",
    fast: bool | None = None,
) -> Generator[Prefilled | Step | None, None, Decoded]:
    """Continue `prompt_ids` with the cache: each token goes through the layers once.

    Args:
        model: a causal model of transformers, or a shell of one; read anew at each run, not changed.
        end_token_ids: the run stops after any of these.
        mistake: do one thing wrong on purpose. "repeat_last_prompt_token": the first decode step feeds the
            last prompt token again instead of the new one. "shift_positions": decode steps are fed at their
            position + 1. "drop_layer_cache": one middle layer forgets the prompt after the prefill.
        fast: None takes the fast path where it fits, False never, True refuses where it does not fit.

    Yields:
        `Prefilled` after each chunk of the prompt, then a `Step` for each new token.

    Raises:
        BadInput: empty prompt, unknown token ids, more tokens than the model's context, unknown layers.
        ModelError: the model has no attention key/value cache.
    """
    sampling, trace = sampling or Sampling(), trace or Trace()
    prompt = _checked(model, prompt_ids, max_new_tokens, trace, mistake)
    ends = frozenset(end_token_ids)
    capacity = len(prompt) + max_new_tokens
    runner = choose_pass(model, capacity, layers=trace.attention_layers, fast=fast, mistake=mistake)
    dropped = cache_layout.layer_to_empty(runner.cache) if mistake == "drop_layer_cache" else None
    choice = _choice(model, sampling, trace)

    logits: Tensor | None = None
    for start in range(0, len(prompt), CHUNK):
        stop = min(start + CHUNK, len(prompt))
        last = stop == len(prompt)
        began = perf_counter()
        with torch.inference_mode():
            logits = runner(prompt[start:stop], start, last=last, attention=last and choice.wants_attention)
            _wait(model)
        yield Prefilled(start, stop, (perf_counter() - began) * 1e3, runner.cache)

    began = perf_counter()
    with torch.inference_mode():
        step = choice.step(_present(logits), runner, (prompt[-1], len(prompt) - 1), len(prompt))
        del logits
        if dropped is not None:
            cache_layout.empty_layer(runner.cache, dropped)
    step.ms, step.cache = (perf_counter() - began) * 1e3, runner.cache
    yield step

    shift = 1 if mistake == "shift_positions" else 0
    while step.token_id not in ends and len(choice.token_ids) < max_new_tokens:
        began = perf_counter()
        fed = prompt[-1] if mistake == "repeat_last_prompt_token" and step.index == 0 else step.token_id
        position = len(prompt) + step.index + shift
        with torch.inference_mode():
            row = runner((fed,), position, last=True, attention=choice.wants_attention)
            step = choice.step(_present(row), runner, (fed, position), 1)
        step.ms, step.cache = (perf_counter() - began) * 1e3, runner.cache
        yield step
    return Decoded(choice.token_ids, runner.cache, runner.name, dropped, choice.capped)


def decode_uncached(
    model: nn.Module,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    end_token_ids: Sequence[int] = (),
    sampling: Sampling | None = None,
    trace: Trace | None = None,
    fast: bool | None = None,
) -> Generator[Step | None, None, Decoded]:
    """Continue `prompt_ids` with nothing remembered between steps: all positions go through the layers for each token.

    Inside a step the positions go in chunks with a scratch cache that is thrown away at its end, so that no
    slice is long. Arguments and errors as in `decode`.

    Yields:
        None between the chunks of a step, then its `Step`.
    """
    sampling, trace = sampling or Sampling(), trace or Trace()
    prompt = _checked(model, prompt_ids, max_new_tokens, trace, "nothing")
    ends = frozenset(end_token_ids)
    choice = _choice(model, sampling, trace)
    path = ""
    while True:
        ids = [*prompt, *choice.token_ids]
        ms = 0.0
        began = perf_counter()
        runner = choose_pass(model, len(ids), layers=trace.attention_layers, fast=fast, mistake="nothing")
        path = runner.name
        step: Step | None = None
        for start in range(0, len(ids), CHUNK):
            stop = min(start + CHUNK, len(ids))
            last = stop == len(ids)
            with torch.inference_mode():
                logits = runner(ids[start:stop], start, last=last, attention=last and choice.wants_attention)
                if last:
                    step = choice.step(_present(logits), runner, (ids[-1], len(ids) - 1), len(ids))
                else:
                    _wait(model)
            ms += (perf_counter() - began) * 1e3
            if not last:
                yield None
                began = perf_counter()
        assert step is not None  # noqa: S101 - the last chunk makes it
        step.ms = ms
        yield step
        if step.token_id in ends or len(choice.token_ids) >= max_new_tokens:
            return Decoded(choice.token_ids, None, path, None, choice.capped)


def _choice(model: nn.Module, sampling: Sampling, trace: Trace) -> _Choice:
    generator = sampling.generator(next(model.parameters()).device) if sampling.do_sample else None
    return _Choice(sampling, trace, generator)


def _present(logits: Tensor | None) -> Tensor:
    assert logits is not None  # noqa: S101 - asked for with last=True
    return logits


def _wait(model: nn.Module) -> None:
    """On a GPU, wait for the work, so that the clock reads compute and not its launch."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _checked(model: nn.Module, prompt_ids: Sequence[int], new: int, trace: Trace, mistake: str) -> list[int]:
    config = model.config.get_text_config() if hasattr(model, "config") else None  # type: ignore[operator, union-attr]
    prompt = [int(i) for i in prompt_ids]
    if not prompt:
        raise BadInput("The prompt has no tokens.", remedy="Give at least one.")
    if new < 1:
        raise BadInput(f"max_new_tokens is {new}.", remedy="Ask for at least one token.")
    if mistake not in get_args(Mistake):
        raise BadInput(f"mistake {mistake!r} is unknown.", remedy=f"Use one of {', '.join(get_args(Mistake))}.")
    if config is None:
        return prompt
    vocab, context = config.vocab_size, getattr(config, "max_position_embeddings", None)
    for token in prompt:
        if not 0 <= token < vocab:
            raise BadInput(f"Token {token} is outside the vocabulary of {vocab}.", remedy="Use the model's tokenizer.")
    if context is not None and len(prompt) + new > context:
        raise BadInput(
            f"{len(prompt)} prompt tokens and {new} new ones pass the model's context of {context}.",
            remedy="Shorten the prompt or ask for fewer tokens.",
        )
    trace.check_layers(config.num_hidden_layers)
    return prompt
