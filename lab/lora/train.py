"""Training an adapter, with pauses: live loss, held-out loss, the best so far kept, whatever happens.

The base is frozen and read-only; only A and B get gradients (Hu et al. 2021). Before the first step the packed pass is
compared with the plain model on real examples: a model that does not take the tree of a batch is given padded rows
instead, and one that disagrees there too is refused.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from lab.errors import BadInput, ModelError
from lab.lora.adamw import AdamW
from lab.lora.adapter import Adapter, Factors
from lab.lora.batches import Tokenized, in_rows
from lab.lora.trained import Steps, Trained, TrainingData, TrainSettings
from lab.lora.training_loop import Pauses, TrainingLoop
from lab.lora.training_loop import Steps as Works
from lab.lora.training_pass import HEAD_ROWS, TrainingPass

AGREES = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""Relative difference (2-norm) of logits up to which two ways through a model count as the same."""
CHECKED = 8
"""Tokens with which the model as a whole is compared."""


class Training(TrainingLoop):
    """One training. `steps()` does the work, `end()` ends it early; `trained()` says at any time what is kept, also
    where `steps()` was closed.

    Args:
        model: the base, of transformers. Read, not changed.
        adapter: what to start from (`lab.lora.adapter.new_adapter`); not changed.

    Raises:
        BadInput: nothing to train on, an example without labels, or ids outside the vocabulary.
        ModelError: a target outside the decoder layers and the head.
    """

    def __init__(self, model: nn.Module, adapter: Adapter, data: TrainingData, settings: TrainSettings) -> None:
        _check(data, adapter.base.vocabulary)
        super().__init__(TrainingPass(model, adapter), settings)
        self._adapter, self._data = adapter, data
        self._device = self._pass.values.device
        self._tree = True
        self._least = math.inf  # of the held-out losses so far, the base's among them
        self._best: tuple[int, float, Tensor] | None = None  # of those after a step: which, its loss, the factors

    def steps(self) -> Steps:
        """The training itself, pausing between two layers once a slice has lasted 30 ms.

        Raises:
            ModelError: the model's own logits differ from those that training would see.
        """
        yield from self._timed(self._work())
        return self.trained()

    @property
    def kept_step(self) -> int:
        """After which step stood what `trained` gives."""
        return self._best[0] if self._best is not None else self._stands

    def trained(self) -> Trained:
        """What is kept so far."""
        loss: float | None
        if self._best is not None:  # the base may be better still: what was learnt is wanted all the same
            step, loss, values = self._best
        else:
            step, values = self._stands, self._pass.values
            loss = None if step else self._before
        tensors = {
            name: Factors(a.cpu().clone(), b.cpu().clone())
            for name, (a, b) in zip(self._pass.names, self._pass.factors(values), strict=True)
        }
        return Trained(
            adapter=replace(self._adapter, tensors=tensors),
            step=step,
            steps=self._done,
            loss=self._loss,
            held_out_loss=loss,
            held_out_before=self._before,
            ended=self._ended,
            packed=self._tree,
            seconds=self._spent,
        )

    def _work(self) -> Works:
        # Of 20 million factors each of these takes as long as a layer does.
        self._optimizer = AdamW(self._pass.values, weight_decay=self._settings.weight_decay)
        yield None
        self._sound = self._pass.values.clone()
        yield None
        yield from self._choose_way()
        train = self._data.train
        yield from self._take_steps(
            len(train),
            lambda chosen: in_rows([train[i] for i in chosen], self._device, tree=self._tree),
            in_rows(self._data.held_out, self._device, tree=self._tree),
        )

    def _forget(self) -> None:
        self._pass.gradient.zero_()

    def _norm(self) -> Generator[None, None, float]:
        yield
        return float(self._pass.gradient.norm())

    def _update(self, factor: float, rate: float) -> Pauses:
        yield  # none between the step and its count
        with torch.no_grad():
            self._sound.copy_(self._pass.values)  # their loss was finite; should the next not be, these are left
            self._optimizer.step(self._pass.gradient.mul_(factor), rate)

    def _keep_best(self, loss: float) -> Generator[None, None, bool]:
        yield
        if not math.isfinite(loss):
            return False
        if self._stands and (self._best is None or loss < self._best[1]):
            self._best = self._stands, loss, self._pass.values.clone()
        least, self._least = self._least, min(loss, self._least)
        return loss < least

    def _step_back(self) -> None:
        if 0 < self._stands == self._done:
            self._pass.values.copy_(self._sound)
            self._stands -= 1

    def _choose_way(self) -> Pauses:
        """Trees if the model takes them, else padded rows; and the plain model as the judge of both."""
        by_length = sorted(self._data.train, key=lambda one: len(one.ids))
        short, long = by_length[0], by_length[-1]
        piece = Tokenized(short.ids[:CHECKED], 1)  # the whole model cannot pause
        in_parts = yield from self._seen([piece], tree=False)
        plain = self._pass.plain(piece)
        yield
        if not _agree(in_parts, plain):
            raise ModelError(
                "The model's logits differ from those that its layers give one after another.",
                remedy="Train another model.",
            )
        alone = []
        for one in (short, long):
            alone.append((yield from self._seen([one], tree=False)))
        together = yield from self._seen([short, long], tree=True)
        self._tree = _agree(together, torch.cat(alone))

    def _seen(self, examples: Sequence[Tokenized], *, tree: bool) -> Generator[None, None, Tensor]:
        (rows,) = in_rows(examples, self._device, tree=tree, room=1 << 30)
        states, _ = yield from self._pass.forward(rows, learn=False)
        found = []
        for part in torch.split(states, HEAD_ROWS):
            with torch.no_grad():
                found.append(self._pass.logits(part))
            yield
        return torch.cat(found)


def training(model: nn.Module, adapter: Adapter, data: TrainingData, settings: TrainSettings) -> Steps:
    """Train `adapter` on `model`: see `Training`, whose `trained()` also tells what a stopped run has kept."""
    return (yield from Training(model, adapter, data, settings).steps())


def _agree(found: Tensor, wanted: Tensor) -> bool:
    limit = AGREES.get(wanted.dtype, AGREES[torch.bfloat16])
    found, wanted = found.float(), wanted.float()
    # Where both hold a NaN the model itself is broken: its first loss will say so.
    return not bool((found - wanted).norm() > limit * wanted.norm())


def _check(data: TrainingData, vocabulary: int | None) -> None:
    if not data.train:
        raise BadInput("There is nothing to train on: 0 examples.", remedy="Give at least one.")
    for one in (*data.train, *data.held_out):
        if not 1 <= one.labels_from < len(one.ids):
            raise BadInput(
                f"An example of {len(one.ids)} tokens has its answer from token {one.labels_from} on.",
                remedy="Give it a prompt and an answer.",
            )
        if min(one.ids) < 0 or (vocabulary is not None and max(one.ids) >= vocabulary):
            raise BadInput(
                f"An example has a token outside the vocabulary of {vocabulary or 0:,}.",
                remedy="Encode it with the model's own tokenizer.",
            )
