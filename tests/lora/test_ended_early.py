"""A training that ends early: what then stands is measured on held-out text, and the best of what was measured kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest
import torch

from lab.lora.adapter import Adapter, LoraConfig, new_adapter
from lab.lora.batches import Tokenized, encode_examples
from lab.lora.task_files import parse_lines
from lab.lora.train import Training
from lab.lora.trained import TrainingData, TrainSettings, TrainStep
from lab.models.loading import LoadedModel
from lab.pruning.magnitude import Magnitude
from lab.pruning.pattern import Pattern
from lab.pruning.recovery import Recovery, RecoverySettings
from lab.pruning.whole_model import prune_model
from lab.steps import finished

Tiny = Callable[..., LoadedModel]
LINES = parse_lines("\n".join(f"the key {i} => values {'so far ' * (i % 3)}{i % 5}" for i in range(14)))
SETTINGS = TrainSettings(steps=8, learning_rate=5e-3, warmup=2, batch=4, measure_every=4)
WINDOWS = [[(7 * i + 3 * j) % 60 + 4 for j in range(12)] for i in range(6)]
HELD = [[(5 * i + 3 * j) % 60 + 4 for j in range(12)] for i in range(2)]


@pytest.fixture
def llama(tiny: Tiny) -> LoadedModel:
    return tiny("llama")


def training(loaded: LoadedModel, settings: TrainSettings = SETTINGS, *, start: Adapter | None = None) -> Training:
    data = TrainingData(encode_examples(loaded, LINES[:10]), encode_examples(loaded, LINES[10:]))
    return Training(loaded.model, start or fresh(loaded), data, settings)


def fresh(loaded: LoadedModel) -> Adapter:
    return new_adapter(loaded.model, LoraConfig(4, 8, ("q_proj", "v_proj", "down_proj")), 0)


def ended_after(run: Training | Recovery, last: int) -> list[TrainStep]:
    """Everything that a run tells which is asked to end as soon as this step was told."""
    told = []
    for step in run.steps():
        if step is not None:
            told.append(step)
            if step.step == last:
                run.end()
    return told


def loss_of(loaded: LoadedModel, adapter: Adapter) -> float | None:
    """The held-out loss of an adapter, as another training that starts from it measures it."""
    return next(step for step in training(loaded, start=adapter).steps() if step is not None).held_out_loss


def equal(first: Adapter, second: Adapter) -> bool:
    return all(
        torch.equal(x, y)
        for name in first.tensors
        for x, y in zip(first.tensors[name], second.tensors[name], strict=True)
    )


def test_what_was_not_measured_yet_is_measured_at_the_end(llama: LoadedModel) -> None:
    run = training(llama)
    told = ended_after(run, 2)
    assert [step.step for step in told] == [0, 1, 2, 2]
    last, made = told[-1], run.trained()
    assert (last.loss, last.tokens, last.best) == (None, told[-2].tokens, True)
    assert math.isnan(last.ms)
    assert (made.ended, made.step, made.steps, made.held_out_loss) == ("stopped", 2, 2, last.held_out_loss)
    assert made.held_out_loss == pytest.approx(loss_of(llama, made.adapter), abs=1e-5)
    assert not made.base_better


def test_what_was_measured_is_not_measured_again(llama: LoadedModel) -> None:
    run = training(llama)
    assert [step.step for step in ended_after(run, 4)] == [0, 1, 2, 3, 4]
    assert (run.trained().ended, run.trained().step) == ("stopped", 4)
    again = training(llama)
    assert [step.step for step in ended_after(again, 8)] == list(range(9))
    assert again.trained().ended == "steps"


def test_an_earlier_best_is_kept_where_the_end_is_worse(llama: LoadedModel) -> None:
    wild = TrainSettings(steps=40, learning_rate=1.0, warmup=40, batch=4, measure_every=1, max_gradient_norm=None)
    losses = [step.held_out_loss or 0 for step in training(llama, wild).steps() if step is not None]
    worse = next(at for at in range(3, 40) if losses[at] > losses[at - 1])
    run = training(llama, replace(wild, measure_every=worse - 1))
    told = ended_after(run, worse)
    assert [step.step for step in told if step.held_out_loss is not None] == [0, worse - 1, worse]
    assert told[-1].held_out_loss == losses[worse]
    assert not told[-1].best
    assert (run.trained().step, run.trained().held_out_loss) == (worse - 1, losses[worse - 1])


def test_a_step_that_is_worse_than_the_base_is_known_to_be(llama: LoadedModel) -> None:
    model: Any = llama.model
    said = model.generate(torch.tensor([[5, 9, 17]]), max_new_tokens=12, do_sample=False)[0].tolist()
    data = TrainingData(encode_examples(llama, LINES[:10]), (Tokenized(tuple(said), 3),))  # nobody says that better
    wild = replace(SETTINGS, learning_rate=0.3, warmup=0, max_gradient_norm=None)
    run = Training(llama.model, fresh(llama), data, wild)
    ended_after(run, 2)
    made = run.trained()
    assert made.held_out_loss is not None
    assert made.held_out_before is not None
    assert made.held_out_before < made.held_out_loss
    assert made.base_better


def test_an_end_that_is_asked_at_once_lets_the_first_step_be_taken(llama: LoadedModel) -> None:
    run = training(llama)
    run.end()
    told = [step for step in run.steps() if step is not None]
    assert [step.step for step in told] == [0, 1]  # measured with the step itself
    assert (run.trained().step, run.trained().held_out_loss) == (1, told[-1].held_out_loss)
    assert told[-1].held_out_loss is not None


def test_an_end_that_is_asked_in_the_middle_of_a_step_comes_after_it(llama: LoadedModel) -> None:
    run = training(llama)
    told: list[TrainStep] = []
    for step in run._work():  # every pause, not only those after 30 ms
        if step is None and told and told[-1].step == 1:
            run.end()
        elif step is not None:
            told.append(step)
    assert [step.step for step in told] == [0, 1, 2]
    assert run.trained().held_out_loss == told[-1].held_out_loss is not None


def breaks_at(monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> None:
    """One loss is no number: that of a batch, or of held-out text, once so many steps are done."""
    real = getattr(Training, name)

    def broken(self: Any, rows: Any) -> Generator[None, None, float]:
        loss: float = yield from real(self, rows)
        return math.nan if self._done == at == self._stands else loss

    monkeypatch.setattr(Training, name, broken)


def test_a_loss_that_is_no_number_leaves_what_stood_before_measured(
    llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = training(llama)
    ended_after(wanted, 1)
    breaks_at(monkeypatch, "_gradient", 2)
    run = training(llama)
    told = [step for step in run.steps() if step is not None]
    assert [step.step for step in told] == [0, 1, 2, 3, 1]
    assert math.isnan(told[-2].loss or 0)
    made = run.trained()
    assert (made.ended, made.step, made.steps) == ("not_finite", 1, 2)
    assert made.held_out_loss == told[-1].held_out_loss == wanted.trained().held_out_loss
    assert equal(made.adapter, wanted.trained().adapter)


def test_a_last_measure_that_is_no_number_steps_back(llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_at(monkeypatch, "_measure", 2)
    run = training(llama)
    told = ended_after(run, 2)
    assert [step.step for step in told] == [0, 1, 2, 2, 1]
    made = run.trained()
    assert (made.ended, made.step, made.held_out_loss) == ("not_finite", 1, told[-1].held_out_loss)
    assert made.held_out_loss == pytest.approx(loss_of(llama, made.adapter), abs=1e-5)


def test_stopped_where_a_loss_was_no_number_the_sound_factors_are_kept(
    llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks_at(monkeypatch, "_gradient", 2)
    run = training(llama)
    steps = run.steps()
    next(step for step in steps if step is not None and step.step == 3)
    steps.close()
    assert (run.trained().step, run.kept_step) == (1, 1)


def test_without_held_out_examples_nothing_is_measured(llama: LoadedModel) -> None:
    run = Training(llama.model, fresh(llama), TrainingData(encode_examples(llama, LINES[:10])), SETTINGS)
    assert [step.step for step in ended_after(run, 3)] == [1, 2, 3]
    assert (run.trained().ended, run.trained().step, run.trained().held_out_loss) == ("stopped", 3, None)


@pytest.mark.parametrize("last", [0, 1])
def test_a_recovery_is_measured_at_its_end_too(tiny: Tiny, last: int) -> None:
    whole = prune_model(tiny("llama").model, Magnitude(Pattern(0.5)))
    settings = RecoverySettings(steps=8, learning_rate=3e-3, warmup=2, batch=2, measure_every=4)

    def recovery(shell: Any = whole.shell) -> Recovery:
        return Recovery(shell, whole.masks(), WINDOWS, HELD, settings)

    run = recovery()
    told = ended_after(run, last)
    assert [step.step for step in told] == ([0, 1] if last == 0 else [0, 1, 1])
    found = finished(run.recovering())
    assert (found.ended, found.steps, found.step) == ("stopped", 1, 1)
    assert found.held_out_loss == told[-1].held_out_loss
    assert found.held_out_before is not None
    assert found.held_out_loss is not None
    assert found.held_out_loss < found.held_out_before
    first = next(step for step in recovery(found.shell).steps() if step is not None)
    assert first.held_out_loss == pytest.approx(found.held_out_loss, abs=1e-6)
