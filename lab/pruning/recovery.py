"""Recovery: a short fine-tune of a pruned model with its masks held, so that what was pruned stays exactly 0.

The optimizer knows only the weights that are kept: they lie side by side in one tensor for each matrix, with AdamW's
two means of the same length, and are written back where the mask keeps them. So neither momentum nor weight decay can
revive a pruned weight. Embedding, norms, biases and head stay as they are. Memory: a copy of the trained matrices,
their gradients, and five numbers for each kept weight (itself, the best so far, its gradient and two means).
A step goes through the layers one by one (`lab.lora.training_pass`) and pauses between any two, and between matrices.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lab.calibration.walk import check_windows
from lab.errors import BadInput, shown
from lab.lora.adamw import AdamW, rate_at
from lab.lora.batches import Rows, batches
from lab.pruning.recovery_pass import RecoveryPass
from lab.steps import finished

MOST_STEPS, MOST_BATCH = 5_000, 64
Ended = Literal["steps", "stopped", "not_finite"]


@dataclass(frozen=True)
class RecoverySettings:
    """How to train.

    Attributes:
        steps: optimizer steps, 1 to 5,000.
        learning_rate: at its peak, above 0 up to 1.
        warmup: steps up to the peak, 0 to `steps`; then a straight line down towards 0.
        batch: windows a step, 1 to 64; each goes through the model alone (a micro-batch).
        weight_decay: AdamW's, 0 to 1.
        seed: of the order of the windows.
        measure_every: steps between two measures of the held-out loss; the last step is always measured.
        longest_gradient: longer ones are shortened to this 2-norm.
        layers: decoder layers whose matrices are trained, by index; None for all.

    Raises:
        BadInput: a value out of bounds.
    """

    steps: int = 30
    learning_rate: float = 1e-4
    warmup: int = 3
    batch: int = 4
    weight_decay: float = 0.0
    seed: int = 0
    measure_every: int = 5
    longest_gradient: float = 1.0
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for what, value, least, most in (
            ("steps", self.steps, 1, MOST_STEPS),
            ("warm-up steps", self.warmup, 0, self.steps),
            ("windows a step", self.batch, 1, MOST_BATCH),
            ("steps between measures", self.measure_every, 1, MOST_STEPS),
            ("a seed", self.seed, 0, 2**32 - 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise BadInput(
                    f"{shown(value)} is out of bounds for {what}: {least:,} to {most:,}.", remedy="Choose one between."
                )
        for what, number, most_ in (
            ("learning rate", self.learning_rate, 1.0),
            ("weight decay", self.weight_decay, 1.0),
            ("longest gradient", self.longest_gradient, 1e6),
        ):
            whole = isinstance(number, int | float) and not isinstance(number, bool)
            if not whole or not 0 <= number <= most_ or (number == 0 and what != "weight decay"):
                raise BadInput(
                    f"A {what} of {shown(number)} is out of bounds: 0 to {most_:g}.", remedy="Choose one between."
                )
        _check_layers(self.layers)


def _check_layers(layers: object) -> None:
    if layers is None:
        return
    whole = isinstance(layers, tuple | list) and all(type(one) is int and one >= 0 for one in layers)
    if not whole:
        raise BadInput(
            f"{shown(layers)} are no decoder layers; they are out of bounds.",
            remedy="Give whole numbers from 0, or None.",
        )


@dataclass(frozen=True)
class RecoveryStep:
    """One step done.

    Attributes:
        step: 1 to `steps`; 0 for what is measured before the first.
        loss: of this batch before the step, nats a token; None at step 0. May be NaN at the last.
        held_out_loss: after the step, nats a token; None where not measured.
        learning_rate, gradient_norm: of this step; the norm is that of kept weights, before it was shortened.
        tokens: sent through the model in this step.
        ms: MEASURED: this step's own time, pauses and measures of the held-out loss not counted.
        best: whether this is the best so far.
    """

    step: int
    steps: int
    loss: float | None
    held_out_loss: float | None
    learning_rate: float
    gradient_norm: float
    tokens: int
    ms: float
    best: bool


@dataclass(frozen=True)
class Recovered:
    """What is kept.

    Attributes:
        shell: with the best weights by held-out loss; shares all else with the model it was made from.
        step: after which step they stood; 0 if no step made it better.
        steps: done in all.
        held_out_loss, held_out_before: nats a token.
        trained: kept weights that were trained.
        ended: "steps": all done; "stopped": before that; "not_finite": a loss or a gradient was no finite number.
        seconds: MEASURED: of work, measures included, pauses not counted.
    """

    shell: nn.Module
    step: int
    steps: int
    held_out_loss: float | None
    held_out_before: float | None
    trained: int
    ended: Ended
    seconds: float


Steps = Generator[RecoveryStep | None, None, Recovered]
"""None is a pause in the middle of a step."""


class Recovery:
    """One recovery. Run `steps()`; close it to stop; `recovering()` then gives the best so far.

    Masks are checked and matrices copied in the first slices of `steps()`.

    Args:
        model: a pruned shell (`lab.pruning.whole_model`). Not changed.
        masks: (out, in) bool by module name, True where a weight is kept; modules without one are not trained.
        windows: token ids to train on, each of two tokens or more.
        held_out: token ids to judge on; not the same text.

    Raises:
        BadInput: no masks, one that does not fit its matrix or its zeros, layers that do not exist, or text that
            cannot be read.
        NotFound: a name that is no linear module.
        ModelError: a model whose layers do not follow one another.
    """

    def __init__(
        self,
        model: nn.Module,
        masks: Mapping[str, Tensor],
        windows: Sequence[Sequence[int]],
        held_out: Sequence[Sequence[int]],
        settings: RecoverySettings | None = None,
    ) -> None:
        self.settings = settings or RecoverySettings()
        embedding: Any = getattr(model, "get_input_embeddings", lambda: None)()
        for text in (windows, held_out):
            check_windows(text, len(embedding.weight) if embedding is not None else 1 << 31)
            if min(len(window) for window in text) < 2:
                raise BadInput("A window of one token predicts nothing.", remedy="Give windows of two tokens or more.")
        self._pass = RecoveryPass(model, masks, self.settings.layers)
        device = next(model.parameters()).device
        self._windows, self._held_out = ([_rows(w, device) for w in text] for text in (windows, held_out))
        self._optimizers: list[AdamW] = []
        self._best: tuple[int, float, list[Tensor]] | None = None
        self._before: float | None = None
        self._done = 0
        self._ended: Ended = "stopped"
        self._spent, self._resumed = 0.0, 0.0

    def steps(self) -> Steps:
        """The work, once. Yields a `RecoveryStep` after each step, None at pauses between."""
        work = self._work()
        try:
            while True:
                self._resumed = perf_counter()
                try:
                    step = next(work)
                except StopIteration:
                    break
                finally:
                    self._spent += perf_counter() - self._resumed
                yield step
        finally:
            work.close()
        return (yield from self.recovering())

    def recovering(self) -> Generator[None, None, Recovered]:
        """What is kept so far, as a shell that later steps do not change, a matrix at a time."""
        step, loss, kept = self._best if self._best is not None else (0, None, [m.kept for m in self._pass.matrices])
        shell = yield from self._pass.shell_with(kept)
        return Recovered(
            shell=shell,
            step=step,
            steps=self._done,
            held_out_loss=loss,
            held_out_before=self._before,
            trained=sum(one.kept.numel() for one in self._pass.matrices),
            ended=self._ended,
            seconds=self._spent,
        )

    def _work(self) -> Generator[RecoveryStep | None, None, None]:
        settings = self.settings
        yield from self._pass.taking()
        self._optimizers = [AdamW(one.kept, weight_decay=settings.weight_decay) for one in self._pass.matrices]
        self._before = yield from self._measure()
        yield RecoveryStep(0, settings.steps, None, self._before, 0.0, 0.0, 0, 0.0, self._keep_best(self._before))
        order = batches(len(self._windows), settings.batch, settings.seed)
        for step in range(1, settings.steps + 1):
            began = self._now()
            chosen = [self._windows[i] for i in next(order)]
            loss = yield from self._gradients(chosen)
            norm = yield from self._pass.gradient_norm()
            rate = rate_at(step, peak=settings.learning_rate, warmup=settings.warmup, steps=settings.steps)
            sound = math.isfinite(loss) and math.isfinite(norm)
            if sound:
                yield from self._update(norm, rate)
            ms = (self._now() - began) * 1e3
            measured = None
            if sound and (step % settings.measure_every == 0 or step == settings.steps):
                measured = yield from self._measure()
                sound = math.isfinite(measured)
            best = measured is not None and self._keep_best(measured)
            tokens = sum(rows.tokens for rows in chosen)
            yield RecoveryStep(step, settings.steps, loss, measured, rate, norm, tokens, ms, best)
            if not sound:
                self._ended = "not_finite"
                return
        self._ended = "steps"

    def _gradients(self, chosen: Sequence[Rows]) -> Generator[None, None, float]:
        """The mean loss of a batch, and its gradient in the matrices."""
        self._pass.forget_gradients()
        labels, total = sum(len(rows.targets) for rows in chosen), 0.0
        for rows in chosen:
            states, kept = yield from self._pass.forward(rows, learn=True)
            loss, slope = yield from self._pass.loss(states, rows.targets, of=labels, learn=True)
            if slope is not None:
                yield from self._pass.backward(rows, kept, slope)
            total += float(loss)
        return total

    def _update(self, norm: float, rate: float) -> Generator[None, None, None]:
        """One step of AdamW on the kept weights, matrix after matrix."""
        factor = min(1.0, self.settings.longest_gradient / (norm + 1e-6))
        for matrix, optimizer in zip(self._pass.matrices, self._optimizers, strict=True):
            with torch.no_grad():
                optimizer.step(matrix.gradient.mul_(factor), rate)
                matrix.write()
            yield
        self._done += 1

    def _measure(self) -> Generator[None, None, float]:
        """The mean held-out loss."""
        labels, total = sum(len(rows.targets) for rows in self._held_out), 0.0
        for rows in self._held_out:
            states, _ = yield from self._pass.forward(rows, learn=False)
            loss, _ = yield from self._pass.loss(states, rows.targets, of=labels, learn=False)
            total += float(loss)
        return total

    def _keep_best(self, loss: float) -> bool:
        if not math.isfinite(loss) or (self._best is not None and loss >= self._best[1]):
            return False
        self._best = self._done, loss, [one.kept.clone() for one in self._pass.matrices]
        return True

    def _now(self) -> float:
        return self._spent + perf_counter() - self._resumed


def recover(
    model: nn.Module,
    masks: Mapping[str, Tensor],
    windows: Sequence[Sequence[int]],
    held_out: Sequence[Sequence[int]],
    settings: RecoverySettings | None = None,
) -> Recovered:
    """A `Recovery`, run to its end at once."""
    return finished(Recovery(model, masks, windows, held_out, settings).steps())


def _rows(window: Sequence[int], device: torch.device) -> Rows:
    ids = torch.tensor(list(window), dtype=torch.int64, device=device)
    return Rows(ids[None, :-1], None, None, torch.arange(len(window) - 1, device=device), ids[1:])
