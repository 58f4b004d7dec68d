"""The task "recover": a short fine-tune with the mask held, measured before and after on the same held-out text."""

from __future__ import annotations

from contextlib import closing

from lab.events import pruning as events
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.progress import progress
from lab.experiments.compared.texts import cut
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.whole import covered, layers_pruned, pruning_model
from lab.models.linear import out_in
from lab.pruning.recovery import Recovered, Recovery, RecoverySettings, RecoveryStep
from lab.steps import paused, relay

HELD = "pruned weights are still 0 after the fine-tune"
MEASURES = 8
"""Measures of the held-out loss in a run, about."""


def recover(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    p = setup.params
    yield from setup.begin()
    windows = yield from setup.texts.choose(calibration=True)
    whole = yield from pruning_model(setup, setup.scheme, windows, "pruning", part=0.2)
    yield layers_pruned(setup, whole)
    yield covered(setup, whole)
    before = yield from setup.texts.compare(whole.shell, "before the fine-tune", 0.2, 1, 0.1)
    masks = whole.masks()
    pieces = split(windows, max(2, min(p.batch_tokens, 128)))
    batch = max(1, p.batch_tokens // max(len(piece) for piece in pieces))
    settings = RecoverySettings(
        steps=p.steps,
        learning_rate=p.learning_rate,
        warmup=min(p.steps, max(1, p.steps // 10)),
        batch=min(batch, 64),
        seed=p.seed,
        measure_every=max(1, p.steps // MEASURES),
    )
    run = Recovery(whole.shell, masks, pieces, split(cut(setup.texts.held_out), 256), settings)
    revived = 0
    with closing(run.steps()) as steps:
        for step in steps:
            if step is None:
                yield None
                continue
            yield _step(step)
            yield progress("fine-tuning", 0.3 + 0.6 * step.step / step.steps, 1)
    found = yield from relay(run.recovering(), paused)
    shell = found.shell
    kept = 0
    for name, mask in masks.items():
        runs = out_in(shell.get_submodule(name))
        revived += int((runs[~mask] != 0).sum())
        kept += int((runs != 0).sum())
        yield None
    after = yield from setup.texts.compare(shell, "after the fine-tune", 0.9, 1, 0.1)
    weights = sum(mask.numel() for mask in masks.values())
    yield events.Recovered(
        setting=setup.scheme.setting,
        pruned=before,
        recovered=after,
        sparsity_before=whole.sparsity,
        sparsity_after=1 - kept / weights if weights else 0.0,
        revived=revived,
        best_step=found.step,
        stopped=found.ended != "steps",
    )
    yield from setup.proving(_held(revived, found))
    return Outcome()


def split(windows: list[list[int]], size: int) -> list[list[int]]:
    """Pieces of the windows, two tokens or more each."""
    pieces = [window[i : i + size] for window in windows for i in range(0, len(window), size)]
    return [piece for piece in pieces if len(piece) > 1]


def _held(revived: int, found: Recovered) -> Finding:
    words = "" if not revived else f"{revived:,} pruned weights are no longer 0."
    detail = {"fine_tuned_steps": found.steps, "fine_tuned_weights": found.trained, "revived": revived}
    return Finding(HELD, "different" if revived else "equal", words, detail)


def _step(step: RecoveryStep) -> events.RecoveryStep:
    return events.RecoveryStep(
        step=step.step,
        steps=step.steps,
        loss=float("nan") if step.loss is None else step.loss,
        heldout_loss=step.held_out_loss,
        learning_rate=step.learning_rate,
        tokens=step.tokens,
        best=step.best,
        ms=step.ms,
    )
