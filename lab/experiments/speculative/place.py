"""Where the exactness trial draws: a position of a real text at which each of the mistakes would show.

The draft must be far from the target there (total variation 0.3 or more), and the tokens that a mistake shifts must
be frequent enough to be counted. Both can be told beforehand, from p and q alone; what is left in a cache shows in the
second token, which takes two passes more.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from lab.decoding import cache_layout
from lab.decoding.choose_pass import choose_pass
from lab.decoding.drafts.choose import Source
from lab.decoding.speculative.identity import emitted
from lab.decoding.speculative.loop import First, Round, prefill, speculate
from lab.decoding.speculative.residual import one_hot
from lab.errors import BadInput
from lab.experiments.speculative.setup import Setup

FAR = 0.3
"""Total variation between target and draft from which the trial has power."""

SEARCHED = 40
"""New tokens among whose positions one is searched."""

_TESTED: tuple[Literal["no_residual", "wrong_q", "top_token_on_rejection"], ...] = (
    "no_residual",
    "wrong_q",
    "top_token_on_rejection",
)
_CLOSER = 12
"""Positions looked at for what takes passes of their own: a wrong cache, skipped processors."""

_COUNTED = 5.0
_PROCESSED = 0.02
"""How much processors must change a distribution for their absence to be looked for."""


@dataclass(frozen=True)
class Place:
    """After `new_ids` of the text: the target's p and the draft's q there, both (vocab,) on the CPU.

    Attributes:
        variation: total variation between the two.
        effect: chi-square that one draw adds under the mistake that shows least.
    """

    new_ids: tuple[int, ...]
    p: Tensor
    q: Tensor
    variation: float
    effect: float


def search(setup: Setup, source: Source, prompt_ids: list[int]) -> Generator[None, None, Place]:
    """The best place in the text that the run would write.

    Raises:
        BadInput: the draft proposed nothing.
    """
    found, seen = yield from _all(setup, source, prompt_ids)
    if not found:
        raise BadInput(
            f"{source.title} proposed nothing in {seen} tokens, so there is nothing to try.",
            remedy="Choose another draft, or a prompt that repeats itself.",
        )
    found.sort(key=lambda place: (min(place.variation, FAR), place.effect), reverse=True)
    closer: list[Place] = []
    for place in found[:_CLOSER]:
        more = yield from _with_passes(setup, prompt_ids, place)
        closer.append(replace(place, effect=min(place.effect, more)))
    return max(closer, key=lambda place: (min(place.variation, FAR), place.effect))


def _all(setup: Setup, source: Source, prompt_ids: list[int]) -> Generator[None, None, tuple[list[Place], int]]:
    new_ids: list[int] = []
    found: list[Place] = []
    run = speculate(
        setup.loaded.model,
        prompt_ids,
        source.fresh(len(prompt_ids) + SEARCHED + 64),
        max_new_tokens=SEARCHED,
        end_token_ids=setup.ends,
        distribution=setup.distribution(len(prompt_ids)),
        gamma=1,
        seed=setup.params.seed,
    )
    with closing(run):
        for item in run:
            if isinstance(item, First):
                new_ids.append(item.token_id)
            elif isinstance(item, Round):
                if item.p is not None and item.proposal.token_ids:
                    found.append(_place(tuple(new_ids), item, item.p[0], setup.params.trial_runs))
                new_ids.extend(item.token_ids)
            yield None
    return found, len(new_ids)


def _place(new_ids: tuple[int, ...], done: Round, here: Tensor, planned: int) -> Place:
    with torch.inference_mode():
        p = here.cpu().clone()
        drawn = done.proposal.q[0]
        q = one_hot(p, done.proposal.token_ids[0]) if drawn is None else drawn.cpu().clone()
        counted = p * planned >= _COUNTED
        effect = min(_effect(p, emitted(p, q, mistake), counted) for mistake in _TESTED)
        variation = float((p - q).abs().sum()) / 2
    return Place(new_ids, p, q, variation, effect)


def _with_passes(setup: Setup, prompt_ids: list[int], place: Place) -> Generator[None, None, float]:
    """The smaller of two effects: of a rejected token that stays in the cache, on what follows the likeliest
    replacement; and of processors that are skipped at a rejection, where there are any."""
    prefix = [*prompt_ids, *place.new_ids]
    rules = setup.distribution(len(prompt_ids))
    over = (place.p - place.q).clamp(min=0.0)
    rejected = int((place.q - place.p).argmax())
    instead = int(over.argmax())
    runner = choose_pass(setup.loaded.model, len(prefix) + 3, layers=(), fast=None, mistake="nothing")
    if len(prefix) > 1:
        yield from _paused(prefill(runner, prefix[:-1], features=False))
    with torch.inference_mode():
        since = cache_layout.mark(runner.cache)
        rows = runner.rows((prefix[-1], instead), len(prefix) - 1)
        right = rules.of(rows.logits[-1], [*prefix, instead]).cpu()
        raw = torch.softmax(rows.logits[0], dim=-1).cpu()
        cache_layout.keep(runner.cache, since, ())
    yield None
    with torch.inference_mode():
        rows = runner.rows((prefix[-1], rejected, instead), len(prefix) - 1)
        wrong = rules.of(rows.logits[-1], [*prefix, instead]).cpu()
        share, first = float(over[instead]), float(place.p[instead])
        counted = right * first * setup.params.trial_runs >= _COUNTED
        effect = share * share / first * _effect(right, wrong, counted) if first > 0.0 else 0.0
        if float((raw - place.p).abs().sum()) > _PROCESSED:
            skipped = emitted(place.p, place.q, "processors_skipped", p_without_processors=raw)
            frequent = place.p * setup.params.trial_runs >= _COUNTED
            effect = min(effect, _effect(place.p, skipped, frequent))
    return effect


def _effect(p: Tensor, other: Tensor, counted: Tensor) -> float:
    """Chi-square that one draw adds if tokens come from `other`: over the frequent tokens, and the rest as one."""
    exact, shifted = p.double()[counted], other.double()[counted]
    rest, shifted_rest = 1.0 - float(exact.sum()), 1.0 - float(shifted.sum())
    total = float(((shifted - exact) ** 2 / exact).sum())
    return total + ((shifted_rest - rest) ** 2 / rest if rest > 1e-4 else 0.0)


def _paused(reading: Generator[object, None, object]) -> Generator[None, None, None]:
    for _ in reading:
        yield None
