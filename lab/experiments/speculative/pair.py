"""A speculative run and a plain one of the same model, rules and prompt, taking turns.

Plain steps follow each round, as many as the round brought tokens, so that both meet the same machine: what else runs
on it, its heat, its caches. The plain run is a real one; nothing about it is computed from the other.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from lab.decoding.speculative.loop import First, PlainStep, Round, Speculated, plain, speculate
from lab.decoding.speculative.rounds import Level
from lab.decoding.steps import Prefilled
from lab.experiments.speculative.setup import Plan, Setup

Item = Prefilled | First | Round | PlainStep | None

_ROUNDS_OF_ROOM = 64


@dataclass
class Took:
    """What is left of a finished pair.

    Attributes:
        token_ids, plain_ids: the new tokens of the two.
        plain_ms: of each plain step but the first, whose pass was the prefill.
        path: which way the tokens went through the model.
    """

    token_ids: list[int] = field(default_factory=list)
    plain_ids: list[int] = field(default_factory=list)
    plain_ms: list[float] = field(default_factory=list)
    path: str = ""


def run_pair(
    setup: Setup, plan: Plan, prompt_ids: Sequence[int], *, max_new_tokens: int, level: Level = "full"
) -> Generator[Item, None, Took]:
    """Both runs to their ends. Yields what they yield."""
    p, took = setup.params, Took()
    rules = setup.distribution(len(prompt_ids))
    draft = plan.source.fresh(len(prompt_ids) + max_new_tokens + _ROUNDS_OF_ROOM)
    with (
        closing(
            speculate(
                setup.loaded.model,
                prompt_ids,
                draft,
                max_new_tokens=max_new_tokens,
                end_token_ids=setup.ends,
                distribution=rules,
                gamma=plan.gamma,
                adaptive=plan.adaptive,
                seed=p.seed,
                trace=level,
                mistake=p.break_run,
            )
        ) as fast,
        closing(
            plain(
                setup.loaded.model,
                prompt_ids,
                max_new_tokens=max_new_tokens,
                end_token_ids=setup.ends,
                distribution=rules,
                seed=p.seed,
            )
        ) as slow,
    ):
        ended: Speculated | None = None
        while ended is None:
            try:
                item = next(fast)
            except StopIteration as stop:
                ended = stop.value
                continue
            yield item
            if isinstance(item, First):
                yield from _steps(slow, took, 1)
            elif isinstance(item, Round):
                yield from _steps(slow, took, len(item.token_ids))
        yield from _steps(slow, took, max_new_tokens)
    took.token_ids, took.path = ended.token_ids, ended.path
    return took


def _steps(slow: Generator[PlainStep | None, None, list[int]], took: Took, count: int) -> Generator[Item, None, None]:
    """So many steps of the plain run, or fewer at its end."""
    for item in slow:
        yield item
        if item is None:
            continue
        took.plain_ids.append(item.token_id)
        if item.index:
            took.plain_ms.append(item.ms)
        count -= 1
        if count <= 0:
            return
