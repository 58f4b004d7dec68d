"""Several models decode one prompt in turn, a step each: what a step of each takes, side by side in one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from torch import nn

from lab.decoding.loop import Decoded, Prefilled, Step, decode
from lab.decoding.trace import Trace
from lab.events import Event
from lab.experiments.compared.progress import Made, progress


@dataclass
class Racer:
    """One model and how far it is.

    Attributes:
        prefill_ms: of the prompt. step_ms: of each step after the first token, which comes out of the prefill.
    """

    name: str
    model: nn.Module
    token_ids: list[int] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    prefill_ms: float = 0.0
    ended: bool = False

    @property
    def decode_ms(self) -> float:
        """The median of its steps; NaN without any."""
        return median(self.step_ms) if self.step_ms else float("nan")


R = TypeVar("R", bound=Racer)


def race(
    racers: Sequence[R],
    prompt: list[int],
    limit: int,
    *,
    stage: str = "decoding",
    ends: Callable[[R], Collection[int]] = lambda _: (),
    told: Callable[[R, Step], Event | None] = lambda _, __: None,
) -> Made[None]:
    """Greedy tokens of each model, at most `limit`, in turn until all have ended.

    Args:
        ends: the tokens that end a model's row; by default none, so that all are timed on as many steps.
        told: the event of a step that was just counted, if there is one.
    """
    running = [(racer, _decoding(racer, prompt, limit, ends(racer))) for racer in racers]
    done, total = 0, limit * len(running)
    try:
        while any(not racer.ended for racer in racers):
            for racer, steps in running:
                if racer.ended:
                    continue
                step = yield from _next(racer, steps)
                if step is None:
                    racer.ended = True
                    continue
                done += 1
                racer.token_ids.append(step.token_id)
                racer.step_ms += [step.ms] if step.index else []
                event = told(racer, step)
                if event is not None:
                    yield event
                yield progress(stage, done, total)
    finally:
        for _, steps in running:
            steps.close()


_Decoding = Generator[Prefilled | Step | None, None, Decoded]


def _decoding(racer: Racer, prompt: list[int], limit: int, ends: Collection[int]) -> _Decoding:
    return decode(racer.model, prompt, max_new_tokens=limit, end_token_ids=sorted(ends), trace=Trace("off"))


def _next(racer: Racer, steps: _Decoding) -> Made[Step | None]:
    for item in steps:
        if isinstance(item, Step):
            return item
        if isinstance(item, Prefilled):
            racer.prefill_ms += item.ms
        yield None
    return None
