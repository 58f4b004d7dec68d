"""What goes into a training of an adapter, and what comes out: settings, examples, steps, the result."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal

from lab.errors import BadInput, shown
from lab.lora.adapter import Adapter
from lab.lora.batches import Tokenized

MOST_STEPS, MOST_BATCH = 5_000, 64
Ended = Literal["steps", "stopped", "not_finite"]


@dataclass(frozen=True)
class TrainSettings:
    """How to train.

    Args:
        steps: optimizer steps, 1 to 5,000.
        learning_rate: at its peak, above 0 up to 1.
        warmup: steps up to the peak, 0 to `steps`; then a straight line down towards 0.
        batch: examples a step, 1 to 64.
        seed: of the order of the examples.
        measure_every: steps between two measures of the held-out loss; the last step is always measured.
        max_gradient_norm: longer gradients are shortened to it; None for never.
        weight_decay: AdamW's.

    Raises:
        BadInput: a value out of bounds.
    """

    steps: int = 40
    learning_rate: float = 4e-3
    warmup: int = 5
    batch: int = 8
    seed: int = 0
    measure_every: int = 10
    max_gradient_norm: float | None = 1.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _whole("number of steps", self.steps, 1, MOST_STEPS)
        _whole("warm-up", self.warmup, 0, self.steps)
        _whole("batch", self.batch, 1, MOST_BATCH)
        _whole("number of steps between measures", self.measure_every, 1, MOST_STEPS)
        _whole("seed", self.seed, 0, 2**32 - 1)
        _number("learning rate", self.learning_rate, 0, 1, above=True)
        _number("weight decay", self.weight_decay, 0, 1)
        if self.max_gradient_norm is not None:
            _number("longest gradient", self.max_gradient_norm, 0, 1e6, above=True)


@dataclass(frozen=True)
class TrainingData:
    """Examples as tokens: to train on, and held out; the latter may be empty."""

    train: tuple[Tokenized, ...]
    held_out: tuple[Tokenized, ...] = ()


@dataclass(frozen=True)
class TrainStep:
    """One step done.

    Attributes:
        step: 1 to `steps`; 0 for what is measured before the first.
        loss: of this batch before the step, nats a token; None at step 0, and where a step that was told before is only
            measured, as the training ended there. May be NaN at the last.
        held_out_loss: after the step, nats a token; None where not measured.
        learning_rate, gradient_norm: of this step; the norm is that before it was shortened.
        tokens, labels: positions sent through the model in this step, and tokens that counted.
        ms: MEASURED: this step's own time, pauses and measures of the held-out loss not counted; NaN where none was
            taken.
        best: whether its held-out loss is the least so far, the base's among them.
    """

    step: int
    steps: int
    loss: float | None
    held_out_loss: float | None
    learning_rate: float
    gradient_norm: float
    tokens: int
    labels: int
    ms: float
    best: bool


@dataclass(frozen=True)
class Trained:
    """What is kept of a training.

    Attributes:
        adapter: the best so far by held-out loss of those after a step; without held-out examples, or where the
            generator was closed before the first measure after a step, the latest with finite losses.
        step: after which step it stood.
        steps: done in all.
        loss: of the last batch done; None before the first.
        held_out_loss, held_out_before: of `adapter`, and of the base; None where nothing is held out.
        ended: "steps": all done; "stopped": before that; "not_finite": a loss or a gradient was no finite number.
        packed: whether batches went through as trees with shared beginnings, or as padded rows.
        seconds: MEASURED: of work, measures included, pauses not counted.
    """

    adapter: Adapter
    step: int
    steps: int
    loss: float | None
    held_out_loss: float | None
    held_out_before: float | None
    ended: Ended
    packed: bool
    seconds: float

    @property
    def base_better(self) -> bool:
        """Whether the base alone has no more held-out loss than `adapter`. False where nothing was compared."""
        before, after = self.held_out_before, self.held_out_loss
        return self.step > 0 and before is not None and after is not None and before <= after


Steps = Generator[TrainStep | None, None, Trained]
"""None is a pause in the middle of a step."""


def _whole(what: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadInput(
            f"The {what} {shown(value)} is not a whole number from {low:,} to {high:,}.", remedy="Choose one of those."
        )


def _number(what: str, value: Any, low: float, high: float, *, above: bool = False) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not low <= value <= high or (above and value == low):
        bounds = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise BadInput(f"The {what} {shown(value)} is not {bounds}.", remedy="Choose a number within those bounds.")
