"""The steps of a training, with pauses and its own clock: an adapter's, and recovery's of a pruned model.

A step is the mean loss of a batch and its gradient, a gradient that is shortened where it is too long, AdamW, and now
and then the held-out loss. What is trained, and how the best of it is kept, is the matter of whoever has the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from time import perf_counter

from lab.lora.adamw import rate_at
from lab.lora.batches import Rows, batches
from lab.lora.trained import Ended, TrainSettings, TrainStep
from lab.lora.training_pass import TrainingPass

PAUSE_MS = 30.0

Pauses = Generator[None, None, None]
Steps = Generator[TrainStep | None, None, None]
"""None is a pause in the middle of a step."""


class TrainingLoop:
    """Below it: what a gradient is collected in, how a step is taken, and what is kept.

    Args:
        part: forward and backward through the model.
    """

    def __init__(self, part: TrainingPass, settings: TrainSettings) -> None:
        self._pass, self._settings = part, settings
        self._done = 0
        self._stands = 0  # after which step what is trained stands
        self._judged: set[int] = set()  # after which steps the held-out loss was measured
        self._enough = False
        self._before: float | None = None
        self._loss: float | None = None
        self._ended: Ended = "stopped"
        self._spent, self._resumed = 0.0, 0.0

    def end(self) -> None:
        """Take no further step once one is done: what then stands is measured, if it was not, and the steps end."""
        self._enough = True

    def _forget(self) -> None:
        """Let the gradient of the batch before go."""
        raise NotImplementedError

    def _norm(self) -> Generator[None, None, float]:
        """The 2-norm of the batch's gradient."""
        raise NotImplementedError

    def _update(self, factor: float, rate: float) -> Pauses:
        """One step of AdamW down the gradient times `factor`."""
        raise NotImplementedError

    def _keep_best(self, loss: float) -> Generator[None, None, bool]:
        """Whether this held-out loss is the least so far; what has it is kept then."""
        raise NotImplementedError

    def _step_back(self) -> None:
        """What stands has a loss that is no finite number: put back what stood before, if that is there still."""

    def _timed(self, work: Steps) -> Steps:
        """The work, pausing between two layers once a slice has lasted 30 ms."""
        self._resumed = perf_counter()
        try:
            for step in work:
                now = perf_counter()
                if step is None and (now - self._resumed) * 1e3 < PAUSE_MS:
                    continue
                self._spent += now - self._resumed
                yield step
                self._resumed = perf_counter()
            self._spent += perf_counter() - self._resumed
        finally:
            work.close()

    def _now(self) -> float:
        return self._spent + perf_counter() - self._resumed

    def _take_steps(
        self, examples: int, rows_of: Callable[[Sequence[int]], Sequence[Rows]], held: Sequence[Rows]
    ) -> Steps:
        """All steps, the held-out loss before them among them.

        Args:
            examples: of which each step's batch is drawn.
            rows_of: what goes through the model for those of these indices.
            held: held-out text; none of it: nothing is measured.
        """
        settings = self._settings
        last: TrainStep | None = None
        if held:
            self._before, best = yield from self._judge(held)
            yield TrainStep(0, settings.steps, None, self._before, 0.0, 0.0, 0, 0, 0.0, best)
        order = batches(examples, settings.batch, settings.seed)
        for step in range(1, settings.steps + 1):
            if self._enough and self._done:
                break
            began = self._now()
            rows = rows_of(next(order))
            self._loss = yield from self._gradient(rows)
            norm = yield from self._norm()
            rate = rate_at(step, peak=settings.learning_rate, warmup=settings.warmup, steps=settings.steps)
            sound = math.isfinite(self._loss) and math.isfinite(norm)
            if sound:
                longest = settings.max_gradient_norm
                yield from self._update(1.0 if longest is None else min(1.0, longest / (norm + 1e-6)), rate)
                self._done = self._stands = step
            ms = (self._now() - began) * 1e3
            measured, best = None, False
            if sound and held and (step % settings.measure_every == 0 or step == settings.steps or self._enough):
                measured, best = yield from self._judge(held)
                sound = math.isfinite(measured)
            if not sound:
                self._ended = "not_finite"
                self._step_back()
            tokens, labels = sum(r.tokens for r in rows), sum(len(r.targets) for r in rows)
            last = TrainStep(step, settings.steps, self._loss, measured, rate, norm, tokens, labels, ms, best)
            yield last
            if not sound:
                break
        else:
            self._ended = "steps"
        while held and last is not None and self._stands and self._stands not in self._judged:
            at = self._stands
            measured, best = yield from self._judge(held)
            if not math.isfinite(measured):
                self._ended = "not_finite"
                self._step_back()
            yield replace(last, step=at, loss=None, held_out_loss=measured, ms=math.nan, best=best)

    def _judge(self, held: Sequence[Rows]) -> Generator[None, None, tuple[float, bool]]:
        """The held-out loss of what stands, kept where it is the best, and whether it is."""
        self._judged.add(self._stands)
        measured = yield from self._measure(held)
        return measured, (yield from self._keep_best(measured))

    def _gradient(self, rows: Sequence[Rows]) -> Generator[None, None, float]:
        """The mean loss of a batch, and its gradient in the pass."""
        self._forget()
        labels = sum(len(part.targets) for part in rows)
        total = 0.0
        for part in rows:
            states, kept = yield from self._pass.forward(part, learn=True)
            loss, slope = yield from self._pass.loss(states, part.targets, of=labels, learn=True)
            if slope is not None:
                yield from self._pass.backward(part, kept, slope)
            total += float(loss)
        return total

    def _measure(self, rows: Sequence[Rows]) -> Generator[None, None, float]:
        """The mean loss of held-out text."""
        labels = sum(len(part.targets) for part in rows)
        total = 0.0
        for part in rows:
            states, _ = yield from self._pass.forward(part, learn=False)
            loss, _ = yield from self._pass.loss(states, part.targets, of=labels, learn=False)
            total += float(loss)
        return total
