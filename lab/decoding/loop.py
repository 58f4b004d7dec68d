"""The token loop: prefill in chunks, then one token a step, with the cache or with nothing remembered.

Both are generators for a cooperative scheduler. `inference_mode` is entered and left inside each slice, so
that nothing leaks to whoever runs between two of them, and each run draws from a generator of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import perf_counter
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from lab.decoding import cache_layout
from lab.decoding.choose_pass import choose_pass
from lab.decoding.sampling import Sampling
from lab.decoding.steps import Chooser, Decoded, Prefilled, Step
from lab.decoding.trace import Trace
from lab.errors import BadInput

__all__ = ["Decoded", "Mistake", "Prefilled", "Step", "decode", "decode_uncached"]

Mistake = Literal["nothing", "repeat_last_prompt_token", "shift_positions", "drop_layer_cache"]


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
        None once ready, `Prefilled` after each chunk of the prompt, then a `Step` for each new token.

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
    yield None

    logits: Tensor | None = None
    for start in range(0, len(prompt), runner.chunk):
        stop = min(start + runner.chunk, len(prompt))
        last = stop == len(prompt)
        through = runner.sliced(prompt[start:stop], start, last=last, attention=last and choice.wants_attention)
        logits, ms = yield from _timed(through, model)
        yield Prefilled(start, stop, ms, runner.cache)

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
        None once ready and between the chunks of a step, then its `Step`.
    """
    sampling, trace = sampling or Sampling(), trace or Trace()
    prompt = _checked(model, prompt_ids, max_new_tokens, trace, "nothing")
    ends = frozenset(end_token_ids)
    choice = _choice(model, sampling, trace)
    capacity = len(prompt) + max_new_tokens
    runner = choose_pass(model, capacity, layers=trace.attention_layers, fast=fast, mistake="nothing")
    yield None
    while True:
        ids = [*prompt, *choice.token_ids]
        whole_ms = 0.0
        runner.forget()
        logits: Tensor | None = None
        for start in range(0, len(ids), runner.chunk):
            stop = min(start + runner.chunk, len(ids))
            last = stop == len(ids)
            through = runner.sliced(ids[start:stop], start, last=last, attention=last and choice.wants_attention)
            logits, ms = yield from _timed(through, model)
            whole_ms += ms
            if not last:
                yield None
        began = perf_counter()
        with torch.inference_mode():
            step = choice.step(_present(logits), runner, (ids[-1], len(ids) - 1), len(ids))
        step.ms = whole_ms + (perf_counter() - began) * 1e3
        yield step
        if step.token_id in ends or len(choice.token_ids) >= max_new_tokens:
            return Decoded(choice.token_ids, None, runner.name, None, choice.capped)


def _timed(
    through: Generator[None, None, Tensor | None], model: nn.Module
) -> Generator[None, None, tuple[Tensor | None, float]]:
    """Hand on the pauses of a pass; its logits and its own milliseconds, those of the pauses left out."""
    ms = 0.0
    while True:
        began = perf_counter()
        try:
            next(through)
        except StopIteration as end:
            _wait(model)
            return end.value, ms + (perf_counter() - began) * 1e3
        ms += (perf_counter() - began) * 1e3
        yield None


def _choice(model: nn.Module, sampling: Sampling, trace: Trace) -> Chooser:
    generator = sampling.generator(next(model.parameters()).device) if sampling.do_sample else None
    return Chooser(sampling, trace, generator)


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
