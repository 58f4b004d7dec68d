"""Recovery: a short fine-tune of a pruned model with its masks held, so that what was pruned stays exactly 0.

Before each step of AdamW the gradient of pruned weights is set to 0; so their means are 0, and neither momentum nor
weight decay can revive one (`lab.pruning.recovery_pass.MaskedMatrix`). Embedding, norms, biases and head stay as they
are. Memory, for each weight of the trained matrices: itself, its gradient, two means and the best so far, and a byte of
mask; 21 bytes in fp32. A step goes through the layers one by one (`lab.lora.training_pass`) and pauses between any two,
and between matrices.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lab.calibration.walk import check_windows
from lab.errors import BadInput, shown
from lab.lora.batches import Rows
from lab.lora.trained import Ended, TrainSettings
from lab.lora.training_loop import Pauses, Steps, TrainingLoop
from lab.pruning.recovery_pass import RecoveryPass
from lab.steps import finished

PASS_TOKENS = 256
"""Positions that go through the model at a time, if windows are no longer: a layer's share stays below 200 ms."""


@dataclass(frozen=True)
class RecoverySettings(TrainSettings):
    """How to train: see `TrainSettings`; its examples are windows here, and its gradient is that of kept weights.

    Attributes:
        layers: decoder layers whose matrices are trained, by index; None for all.

    Raises:
        BadInput: a value out of bounds.
    """

    steps: int = 20
    learning_rate: float = 1e-4
    warmup: int = 2
    batch: int = 4
    measure_every: int = 5
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = isinstance(self.layers, tuple | list) and all(type(one) is int and one >= 0 for one in self.layers)
        if self.layers is not None and not whole:
            raise BadInput(
                f"{shown(self.layers)} are no decoder layers.", remedy="Give whole numbers from 0, or None for all."
            )


@dataclass(frozen=True)
class Recovered:
    """What is kept.

    Attributes:
        shell: with the best weights by held-out loss; shares all else with the model it was made from.
        step: after which step they stood; 0 if no step made it better.
        steps: done in all.
        held_out_loss, held_out_before: nats a token; None where it was stopped before they were measured.
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


class Recovery(TrainingLoop):
    """One recovery. Run `steps()`; `end()` ends it early, or close it; `recovering()` then gives the best so far.

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

    _pass: RecoveryPass

    def __init__(
        self,
        model: nn.Module,
        masks: Mapping[str, Tensor],
        windows: Sequence[Sequence[int]],
        held_out: Sequence[Sequence[int]],
        settings: RecoverySettings | None = None,
    ) -> None:
        settings = settings or RecoverySettings()
        embedding: Any = getattr(model, "get_input_embeddings", lambda: None)()
        for text in (windows, held_out):
            check_windows(text, len(embedding.weight) if embedding is not None else 1 << 31)
            if min(len(window) for window in text) < 2:
                raise BadInput("A window of one token predicts nothing.", remedy="Give windows of two tokens or more.")
        super().__init__(RecoveryPass(model, masks, settings.layers), settings)
        self._windows, self._held_out = windows, held_out
        self._best: tuple[int, float] | None = None

    def steps(self) -> Steps:
        """The work, once. Yields a `TrainStep` after each step, None at pauses between."""
        yield from self._timed(self._work())

    def recovering(self) -> Generator[None, None, Recovered]:
        """What is kept so far, as a shell that later steps do not change, a matrix at a time."""
        step, loss = self._best or (0, None)
        shell = yield from self._pass.best_shell()
        return Recovered(
            shell=shell,
            step=step,
            steps=self._done,
            held_out_loss=loss,
            held_out_before=self._before,
            trained=sum(one.kept for one in self._pass.matrices),
            ended=self._ended,
            seconds=self._spent,
        )

    def _work(self) -> Steps:
        yield from self._pass.taking(self._settings.weight_decay)
        device = self._pass.device
        yield from self._take_steps(
            len(self._windows),
            lambda chosen: _rows([self._windows[i] for i in chosen], device),
            _rows(self._held_out, device),
        )

    def _forget(self) -> None:
        self._pass.forget_gradients()

    def _norm(self) -> Generator[None, None, float]:
        return (yield from self._pass.gradient_norm())

    def _update(self, factor: float, rate: float) -> Pauses:
        for matrix in self._pass.matrices:
            with torch.no_grad():
                matrix.step(factor, rate)
            yield

    def _keep_best(self, loss: float) -> Generator[None, None, bool]:
        if not math.isfinite(loss) or (self._best is not None and loss >= self._best[1]):
            return False
        left = iter(self._pass.matrices)
        try:
            for matrix in left:
                matrix.keep()
                yield
        finally:  # closed at a pause: half of one step and half of another would be the best of none
            for matrix in left:
                matrix.keep()
            self._best = self._stands, loss
        return True


def recover(
    model: nn.Module,
    masks: Mapping[str, Tensor],
    windows: Sequence[Sequence[int]],
    held_out: Sequence[Sequence[int]],
    settings: RecoverySettings | None = None,
) -> Recovered:
    """A `Recovery`, run to its end at once."""
    run = Recovery(model, masks, windows, held_out, settings)
    finished(run.steps())
    return finished(run.recovering())


def _rows(windows: Sequence[Sequence[int]], device: torch.device) -> list[Rows]:
    """Windows of one length go through the model together, as many as `PASS_TOKENS` holds."""
    by_length: dict[int, list[Sequence[int]]] = {}
    for window in windows:
        by_length.setdefault(len(window) - 1, []).append(window)
    made = []
    for length, alike in by_length.items():
        together = max(1, PASS_TOKENS // length)
        for start in range(0, len(alike), together):
            ids = torch.tensor([list(w) for w in alike[start : start + together]], dtype=torch.int64, device=device)
            made.append(
                Rows(ids[:, :-1], None, None, torch.arange(ids[:, 1:].numel(), device=device), ids[:, 1:].flatten())
            )
    return made
