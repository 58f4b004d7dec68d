"""Several models decode one prompt in turn, a step each: what a step of each takes, side by side."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from statistics import median

from torch import nn

from lab.decoding.loop import Decoded, Prefilled, Step, decode
from lab.decoding.trace import Trace
from lab.experiments.compared.progress import Made, progress


@dataclass
class Runner:
    """One model and how far it is."""

    steps: Generator[Prefilled | Step | None, None, Decoded]
    token_ids: list[int] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def decode_ms(self) -> float:
        """The median of its steps; NaN without any."""
        return median(self.step_ms) if self.step_ms else float("nan")


def race(models: Mapping[str, nn.Module], prompt: list[int], limit: int) -> Made[dict[str, Runner]]:
    """Greedy tokens of each model, by name. None stops at an end token, so that all are timed on as many steps."""
    running = {
        name: Runner(decode(model, prompt, max_new_tokens=limit, trace=Trace("off"))) for name, model in models.items()
    }
    done, total = 0, limit * len(running)
    try:
        while any(not runner.ended for runner in running.values()):
            for runner in running.values():
                if runner.ended:
                    continue
                step = yield from _next(runner)
                if step is None:
                    runner.ended = True
                    continue
                done += 1
                runner.token_ids.append(step.token_id)
                runner.step_ms += [step.ms] if step.index else []
                yield progress("decoding in turn", done, total)
    finally:
        for runner in running.values():
            runner.steps.close()
    return running


def _next(runner: Runner) -> Made[Step | None]:
    for item in runner.steps:
        if isinstance(item, Step):
            return item
        yield None
    return None
