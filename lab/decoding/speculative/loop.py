"""The speculative loop: prefill in slices, then rounds of propose, verify and judge. And the plain loop beside it.

Both are generators for a cooperative scheduler. Inference mode is entered and left inside each slice, and each run
draws from a generator of its own. Sources: Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (2302.01318).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, get_args

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from lab.decoding.choose_pass import choose_pass
from lab.decoding.distribution import Distribution
from lab.decoding.drafts.base import Draft, Sight
from lab.decoding.passes import Pass
from lab.decoding.sampling import Sampling
from lab.decoding.speculative.adaptive import MOST, AdaptiveGamma
from lab.decoding.speculative.kernel import Mistake, draw
from lab.decoding.speculative.rounds import Level, Round, Rounds
from lab.decoding.steps import Prefilled
from lab.errors import BadInput

__all__ = ["First", "PlainStep", "Round", "Speculated", "plain", "prefill", "speculate"]

MOST_GAMMA = 64
"""Tokens proposed in a round at most: a draft is a chain of small passes in one slice."""

FEATURE_CHUNK = 32
"""Prompt tokens in one pass of rows, where the draft wants the features of them all."""


@dataclass(frozen=True)
class First:
    """The first new token, from the prefill's own distribution.

    Attributes:
        p: of the token; 1 when greedy.
        distribution: (vocab,) that it was drawn from; None when greedy or where tokens alone are wanted.
    """

    token_id: int
    p: float
    ends: bool
    distribution: Tensor | None


@dataclass
class Speculated:
    """The end of a run.

    Attributes:
        token_ids: the new tokens, the end token included if one came.
        rounds: target passes after the prefill.
        path: "llama" for the fast path, "transformers" for the model's own forward.
    """

    token_ids: list[int]
    rounds: int
    path: str
    cache: Cache


def speculate(
    model: nn.Module,
    prompt_ids: Sequence[int],
    draft: Draft,
    *,
    max_new_tokens: int,
    end_token_ids: Sequence[int] = (),
    distribution: Distribution | None = None,
    gamma: int = 3,
    adaptive: bool = False,
    seed: int = 0,
    trace: Level = "full",
    mistake: Mistake = "nothing",
    fast: bool | None = None,
) -> Generator[Prefilled | First | Round | None, None, Speculated]:
    """Continue `prompt_ids` with a draft that proposes and the model that verifies.

    The tokens follow exactly the distribution that plain decoding draws from; greedy, they are plain decoding's own.

    Args:
        model: a causal model of transformers, or a shell of one; read, not changed.
        draft: fresh; it lives for this run.
        distribution: the rules of both sides; greedy if None. Its end tokens are replaced by `end_token_ids`.
        gamma: tokens to propose in a round; the first of an adaptive run.
        seed: of the run's generator, from which target and draft draw.
        trace: "off" for tokens and times alone, "full" for all that a `Round` can hold.
        mistake: do one thing wrong on purpose, see `lab.decoding.speculative.residual`.
        fast: None takes the fast path where it fits, False never, True refuses where it does not fit.

    Yields:
        None between the parts of a round, `Prefilled` after each chunk of the prompt, `First`, then `Round`s.

    Raises:
        BadInput: empty prompt, unknown token ids, more tokens than the model's context, a gamma outside 1 to 64.
        ModelError: the model has no attention key/value cache, or its pass cannot do what the draft needs.
        ValueError: the draft breaks its contract.
    """
    rules = _rules(distribution, prompt_ids, end_token_ids)
    prompt = checked_prompt(model, prompt_ids, max_new_tokens)
    if not 1 <= gamma <= MOST_GAMMA:
        raise BadInput(f"gamma is {gamma}.", remedy=f"Propose 1 to {MOST_GAMMA} tokens in a round.")
    if mistake not in get_args(Mistake):
        raise BadInput(f"mistake {mistake!r} is unknown.", remedy=f"Use one of {', '.join(get_args(Mistake))}.")
    # What is proposed is in the cache until it is judged; a run that never crops keeps it all.
    widest = max(MOST, gamma) if adaptive else gamma
    room = max_new_tokens * (1 + widest) if mistake == "cache_not_cropped" else max_new_tokens
    runner = choose_pass(model, len(prompt) + room + widest + 1, layers=(), fast=fast, mistake="nothing")
    generator = torch.Generator(device=next(model.parameters()).device).manual_seed(seed)
    sight = Sight(ids=list(prompt), target=runner, generator=generator)
    yield None

    logits, sight.features = yield from prefill(runner, prompt, features=draft.wants_features)
    warm: Any = getattr(draft, "warm", None)
    if warm is not None:
        yield from warm(prompt)
    with torch.inference_mode():
        first = _first(logits, rules, prompt, generator, keep=trace == "full")
    sight.ids.append(first.token_id)
    yield first

    rounds = Rounds(runner, draft, sight, rules, mistake=mistake, level=trace)
    pace = AdaptiveGamma(min(gamma, MOST)) if adaptive else None
    ends = first.ends
    while not ends and (left := max_new_tokens + len(prompt) - len(sight.ids)) > 0:
        done = yield from rounds.round(pace.gamma if pace is not None else gamma, left)
        if pace is not None:
            pace.after(max(done.proposal.tree.depths(), default=-1) + 1, len(done.path))
        ends = done.ends
        yield done
    return Speculated(sight.ids[len(prompt) :], rounds.index, runner.name, runner.cache)


@dataclass(frozen=True)
class PlainStep:
    """One token of the plain run. `ms`: own compute; for index 0 the choice alone."""

    index: int
    token_id: int
    ms: float


def plain(
    model: nn.Module,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    end_token_ids: Sequence[int] = (),
    distribution: Distribution | None = None,
    seed: int = 0,
    fast: bool | None = None,
) -> Generator[PlainStep | None, None, list[int]]:
    """The same model, rules and machine with no draft: one token a pass. What speculation is measured against.

    Arguments and errors as in `speculate`.
    """
    rules = _rules(distribution, prompt_ids, end_token_ids)
    prompt = checked_prompt(model, prompt_ids, max_new_tokens)
    runner = choose_pass(model, len(prompt) + max_new_tokens, layers=(), fast=fast, mistake="nothing")
    generator = torch.Generator(device=next(model.parameters()).device).manual_seed(seed)
    ids = list(prompt)
    yield None
    logits: Tensor | None = None
    for item in _walk(runner, prompt):
        if isinstance(item, Tensor):
            logits = item
        yield None
    began = perf_counter()
    for index in range(max_new_tokens):
        with torch.inference_mode():
            if index:
                logits = runner((ids[-1],), len(ids) - 1, last=True, attention=False)
            assert logits is not None  # noqa: S101 - asked for with last=True
            token, _ = _chosen(logits, rules, ids, generator)
        ids.append(token)
        yield PlainStep(index, token, (perf_counter() - began) * 1e3)
        if token in rules.end_token_ids:
            break
        began = perf_counter()
    return ids[len(prompt) :]


def checked_prompt(model: nn.Module, prompt_ids: Sequence[int], new: int) -> list[int]:
    """The prompt as a list.

    Raises:
        BadInput: it is empty, has unknown ids, or passes the context with `new` tokens more.
    """
    prompt = [int(i) for i in prompt_ids]
    if not prompt:
        raise BadInput("The prompt has no tokens.", remedy="Give at least one.")
    if new < 1:
        raise BadInput(f"max_new_tokens is {new}.", remedy="Ask for at least one token.")
    config: Any = model.config.get_text_config() if hasattr(model, "config") else None  # type: ignore[operator, union-attr]
    if config is None:
        return prompt
    for token in prompt:
        if not 0 <= token < config.vocab_size:
            raise BadInput(
                f"Token {token} is outside the vocabulary of {config.vocab_size}.", remedy="Use the model's tokenizer."
            )
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and len(prompt) + new > context:
        raise BadInput(
            f"{len(prompt)} prompt tokens and {new} new ones pass the model's context of {context}.",
            remedy="Shorten the prompt or ask for fewer tokens.",
        )
    return prompt


def _rules(distribution: Distribution | None, prompt_ids: Sequence[int], ends: Sequence[int]) -> Distribution:
    given = distribution or Distribution(Sampling())
    return replace(given, prompt_length=len(prompt_ids), end_token_ids=tuple(ends))


def prefill(
    runner: Pass, prompt: list[int], *, features: bool
) -> Generator[Prefilled | None, None, tuple[Tensor, Tensor | None]]:
    """Fill the pass's cache: the logits after the prompt, (vocab,), and the features of all its tokens, (token,
    hidden), if wanted."""
    logits: Tensor | None = None
    kept: list[Tensor] = []
    if not features:
        done = 0
        for item in _walk(runner, prompt):
            if isinstance(item, tuple):
                yield Prefilled(done, item[0], item[1], runner.cache)
                done = item[0]
            elif item is None:
                yield None
            else:
                logits = item
    for start in range(0, len(prompt) if features else 0, FEATURE_CHUNK):
        began = perf_counter()
        piece = prompt[start : start + FEATURE_CHUNK]
        with torch.inference_mode():
            rows = runner.rows(piece, start)
            logits = rows.logits[-1]
            if rows.features is not None:
                kept.append(rows.features)
        yield Prefilled(start, start + len(piece), (perf_counter() - began) * 1e3, runner.cache)
    assert logits is not None  # noqa: S101 - the prompt has a token
    return logits, torch.cat(kept) if kept else None


def _walk(runner: Pass, prompt: list[int]) -> Generator[tuple[int, float] | Tensor | None, None, None]:
    """Send the prompt through in chunks: None at a pause, (positions done, milliseconds) after each chunk, and the
    logits last."""
    logits: Tensor | None = None
    for start in range(0, len(prompt), runner.chunk):
        stop = min(start + runner.chunk, len(prompt))
        through = runner.sliced(prompt[start:stop], start, last=stop == len(prompt), attention=False)
        ms, began = 0.0, perf_counter()
        while True:
            try:
                next(through)
            except StopIteration as end:
                logits = end.value
                break
            ms += (perf_counter() - began) * 1e3
            yield None
            began = perf_counter()
        yield stop, ms + (perf_counter() - began) * 1e3
    if logits is not None:
        yield logits


def _first(logits: Tensor, rules: Distribution, prompt: list[int], generator: torch.Generator, *, keep: bool) -> First:
    token, p = _chosen(logits, rules, prompt, generator)
    share = 1.0 if p is None else float(p[token])
    return First(token, share, token in rules.end_token_ids, p if keep else None)


def _chosen(
    logits: Tensor, rules: Distribution, ids: list[int], generator: torch.Generator
) -> tuple[int, Tensor | None]:
    """The next token, and what it was drawn from (None when greedy)."""
    if rules.greedy:
        return int(rules.processed(logits, ids).argmax()), None
    p = rules.of(logits, ids)
    return draw(p, float(torch.rand((), generator=generator, device=generator.device))), p
