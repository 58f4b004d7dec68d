"""The steps of a training in words and as a table, whatever is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any, Protocol, TypeVar

from widgets.experiment import Table
from widgets.format import format_ms, split_ms
from widgets.loss_plot import LossStep
from widgets.numbers import number


class TrainingStep(LossStep, Protocol):
    """One optimizer step as events tell it, `LossStep` and more."""

    @property
    def steps(self) -> int: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def tokens(self) -> int: ...

    @property
    def best(self) -> bool: ...

    @property
    def ms(self) -> float: ...


S = TypeVar("S", bound=TrainingStep)


def best_of(steps: Sequence[S]) -> S | None:
    """The step whose weights are kept so far."""
    return next((s for s in reversed(steps) if s.best), None)


def so_far(steps: Sequence[TrainingStep], tokens: str, kept: str) -> str:
    """Where the training is.

    Args:
        steps: at least one.
        tokens: what tokens of a step are called.
        kept: what is kept: "that adapter is kept".
    """
    last, best = steps[-1], best_of(steps)
    at = f" The ring: least held-out loss, after step {best.step}; {kept}." if best else ""
    if last.step == 0:
        return f"Before training.{at}"
    rate = number(last.learning_rate, 2)
    return f"{last.step} of {last.steps} steps, {last.tokens:,} {tokens} in the last, learning rate {rate}.{at}"


def ended_early(why: str) -> str:
    """A note; "" where it did not."""
    return f"Ended early: {why}. The best so far was kept." if why else ""


def step_figure(steps: Sequence[TrainingStep], all_ms: float | None = None) -> dict[str, Any]:
    """The time of a step.

    Args:
        all_ms: of the whole training, when it has ended.
    """
    taken = [s.ms for s in steps if s.step > 0 and math.isfinite(s.ms)]
    value, unit = split_ms(median(taken)) if taken else ("", "")
    return {
        "id": "step_ms",
        "value": value,
        "unit": f"{unit} a step" if unit else "a step",
        "badge": "MEASURED",
        "note": f"{len(taken):,} steps so far" if all_ms is None else f"{format_ms(all_ms)} of training",
        "title": "Median over the steps: forward, backward and the optimizer.",
    }


def step_table(name: str, steps: Sequence[TrainingStep], tokens: str) -> Table:
    """One row a step.

    Args:
        tokens: what tokens of a step are called.
    """
    head = ["step", "loss, nats", "held-out loss, nats", "learning rate", tokens, "best so far", "ms"]
    rows = [
        [
            s.step,
            rounded(s.loss),
            rounded(s.heldout_loss),
            rounded(s.learning_rate),
            s.tokens,
            "yes" if s.best else "",
            rounded(s.ms),
        ]
        for s in steps
    ]
    return Table(name, head, rows)


def rounded(value: float | None) -> float | None:
    """Five digits, None for what is no number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
