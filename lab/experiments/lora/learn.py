"""The task "train": the words before, the training live, where the update sits, and the words after."""

from __future__ import annotations

import math

import torch
from torch import nn

from lab.errors import LabError
from lab.events import lora as events
from lab.experiments.base import RunGenerator
from lab.experiments.compared.ending import Ending
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.fingerprint import fingerprint
from lab.experiments.compared.progress import Made, progress
from lab.experiments.compared.words import ComparedWords
from lab.experiments.lora.adapters import facts_of, targets_of, write_kept
from lab.experiments.lora.compare import before_and_after
from lab.experiments.lora.kept import Kept
from lab.experiments.lora.merged_out import write_merged
from lab.experiments.lora.params import LoraParams
from lab.experiments.lora.picture import picturing
from lab.experiments.lora.setup import Setup
from lab.lora.adapter import LoraConfig, new_adapter
from lab.lora.batches import Tokenized, encode_examples
from lab.lora.task_files import Example
from lab.lora.tasks import Task, own_task, packaged_task
from lab.lora.train import Training
from lab.lora.trained import Trained, TrainingData, TrainSettings, TrainStep
from lab.models.linear import out_in, set_weight
from lab.models.shell import make_shell

NAME = "trained"
SHOWN_EXAMPLES = 5
MEASURES = 12
"""Of the held-out loss in a run, or so."""
FROZEN = "the base is frozen: its hash is the same after training"
_ENCODED = 32


def train(setup: Setup) -> RunGenerator:
    """Yield the events of the task. Whoever stops the run keeps the best adapter so far."""
    p = setup.params
    task = task_of(p)
    words = ComparedWords(setup.loaded, p)
    yield from words.read()
    setup.kept.prompt = tuple(words.prompt)
    yield from setup.begin()
    data = yield from _encoded(setup, task)
    yield _told(task, data)
    yield from words.speak_dense()
    setup.kept.rows["dense"] = tuple(words.dense.token_ids)
    found = yield from _trained(setup, data)
    adapter, notes = found.adapter, _notes(found)
    if p.save:
        write_kept(adapter, p.save)
        notes = (
            *notes,
            f"Kept under the name {p.save}, in PEFT's format: in adapters/{p.save} of the cache directory.",
        )
    yield facts_of(adapter, setup.loaded, _label(p, task), "trained here", notes)
    yield from picturing(adapter, setup.model, setup.kept)
    merged = yield from before_and_after(setup, words, adapter, 1.0)
    yield from write_merged(setup, merged, adapter)
    yield from setup.proving()
    return words.outcome


def task_of(params: LoraParams) -> Task:
    """What is learnt.

    Raises:
        BadInput: lines that cannot be learnt; the line is named.
    """
    return own_task(params.lines) if params.learn == "lines" else packaged_task(params.learn)


def _label(params: LoraParams, task: Task) -> str:
    return f"{task.label}, rank {params.rank}"


def _encoded(setup: Setup, task: Task) -> Made[TrainingData]:
    parts: list[tuple[Tokenized, ...]] = []
    for lines in (task.train, task.held_out):
        found: list[Tokenized] = []
        for start in range(0, len(lines), _ENCODED):
            found += encode_examples(setup.loaded, lines[start : start + _ENCODED], chat=setup.params.chat)
            yield None
        parts.append(tuple(found))
    return TrainingData(*parts)


def _told(task: Task, data: TrainingData) -> events.TrainingData:
    from lab.lora.make_adapter import lines_hash

    shown: tuple[Example, ...] = task.train[:SHOWN_EXAMPLES]
    return events.TrainingData(
        task=task.name,
        words=f"{task.label}. {task.about}",
        hash=lines_hash((*task.train, *task.held_out))[:12],
        train_examples=len(data.train),
        heldout_examples=len(data.held_out),
        train_tokens=sum(one.labels for one in data.train),
        heldout_tokens=sum(one.labels for one in data.held_out),
        examples=tuple((one.prompt, one.answer) for one in shown),
    )


def _trained(setup: Setup, data: TrainingData) -> Made[Trained]:
    """Train, tell each step, and tell what came of it."""
    p, kept = setup.params, setup.kept
    config = LoraConfig(p.rank, p.alpha, targets_of(setup.model, p.targets), p.rslora)
    facts = setup.loaded.facts
    start = new_adapter(setup.model, config, p.seed, name=NAME, model_id=facts.id, weight_hash=facts.weight_hash or "")
    yield None
    run = Training(setup.model, start, data, settings_of(p))
    steps = run.steps()
    losses: list[float] = []
    ending, at = Ending(setup.context), 0
    try:
        for step in steps:
            if run.kept_step != at:
                at = _keep_so_far(kept, run.trained())
            if step is None:
                yield None
            else:
                losses += [] if step.loss is None else [step.loss]
                yield _step(step)
                yield progress("training", step.step, step.steps)
            if ending.due():
                run.end()
    finally:
        steps.close()
        ending.going = False
    found = run.trained()
    _keep_so_far(kept, found)
    if not found.step or (found.held_out_loss is None and data.held_out):
        raise LabError(
            "Nothing was trained that can be kept: a loss was no finite number.",
            remedy="Train again with a lower learning rate.",
        )
    untouched = yield from _untouched(setup)
    yield _ended(found, losses, ending.why(found.ended), untouched)
    return found


def _keep_so_far(kept: Kept, found: Trained) -> int:
    """For questions, those to a run that is stopped here among them: a new best, or before the first measure the
    latest. Its step."""
    loss = found.held_out_loss
    measured = "not measured on held-out lines" if loss is None else f"held-out loss {loss:.4g} nats a token"
    kept.adapter = found.adapter if found.step else None
    kept.about = f", as it stood after step {found.step}, {measured}" if found.step else ""
    return found.step


def _notes(found: Trained) -> tuple[str, ...]:
    before, after = found.held_out_before, found.held_out_loss
    if not found.base_better or before is None or after is None:
        return ()
    return (f"The base alone is better: {before:.4g} nats a held-out token; the best that was trained: {after:.4g}.",)


def settings_of(params: LoraParams) -> TrainSettings:
    """How to train."""
    return TrainSettings(
        steps=params.steps,
        learning_rate=params.learning_rate,
        warmup=min(5, params.steps),
        batch=params.batch,
        seed=params.seed,
        measure_every=max(1, params.steps // MEASURES),
    )


def _untouched(setup: Setup) -> Made[bool]:
    """Whether the base has the hash that it had; with the mistake, a base that was trained a little too."""
    base: nn.Module = setup.model
    if setup.params.break_run == "base_trained":
        base = trained_base(setup.model)
    after = yield from fingerprint(base)
    same = after == setup.before
    words = "" if same else "The base that the adapter was trained on is not the one that the run began with."
    setup.findings.append(Finding(FROZEN, "equal" if same else "different", words, {"trained_base_sha256": after}))
    return same


def trained_base(model: nn.Module) -> nn.Module:
    """A shell whose first linear matrix has moved, as an optimizer that was given the base's weights moves it."""
    from lab.experiments.compared.targets import find_targets

    shell = make_shell(model)
    module = shell.get_submodule(find_targets(model)[0].name)
    with torch.inference_mode(False), torch.no_grad():
        set_weight(module, out_in(module).float() * 1.01)
    return shell


def _step(step: TrainStep) -> events.TrainStep:
    return events.TrainStep(
        step=step.step,
        steps=step.steps,
        loss=math.nan if step.loss is None else step.loss,
        heldout_loss=step.held_out_loss,
        learning_rate=step.learning_rate,
        tokens=step.labels,
        best=step.best,
        ms=step.ms,
    )


def _ended(found: Trained, losses: list[float], stopped: str, untouched: bool) -> events.Trained:
    def number(value: float | None) -> float:
        return math.nan if value is None else value

    return events.Trained(
        adapter=NAME,
        best_step=found.step,
        steps=found.steps,
        seconds=found.seconds,
        loss_before=losses[0] if losses else math.nan,
        loss_after=number(found.loss),
        heldout_before=number(found.held_out_before),
        heldout_after=number(found.held_out_loss),
        stopped=stopped,
        base_untouched=untouched,
    )
