"""The task "recover": a short fine-tune with the mask held, measured before and after on the same held-out text."""

from __future__ import annotations

from lab.events import pruning as events
from lab.experiments.base import Outcome, RunGenerator
from lab.experiments.compared.ending import Ending
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.progress import Made, progress
from lab.experiments.compared.texts import cut
from lab.experiments.pruning.pruned import Whole
from lab.experiments.pruning.setup import Setup
from lab.experiments.pruning.whole import covered, pruning_model
from lab.lora.trained import TrainStep
from lab.models.linear import out_in
from lab.pruning.recovery import Recovered, Recovery, RecoverySettings
from lab.steps import paused, relay

HELD = "pruned weights are still 0 after the fine-tune"
MEASURES = 8
"""Measures of the held-out loss in a run, about."""


def recover(setup: Setup) -> RunGenerator:
    """Yield the events of the task."""
    yield from setup.begin()
    windows = yield from setup.texts.choose(calibration=True)
    whole = yield from pruning_model(setup, setup.scheme, windows, "pruning", tell=True)
    yield covered(setup, whole)
    before = yield from setup.texts.compare(whole.shell, "before the fine-tune")
    ended, found = yield from _fine_tuned(setup, whole, windows)
    kept, revived = yield from _counted(whole, found)
    after = yield from setup.texts.compare(found.shell, "after the fine-tune")
    weights = sum(one.weights for one in whole.modules.values())
    yield events.Recovered(
        setting=setup.scheme.setting,
        pruned=before,
        recovered=after,
        sparsity_before=whole.sparsity,
        sparsity_after=1 - kept / weights if weights else 0.0,
        revived=revived,
        best_step=found.step,
        stopped=ended,
    )
    yield from setup.proving(_held(revived, found))
    return Outcome()


def _fine_tuned(setup: Setup, whole: Whole, windows: list[list[int]]) -> Made[tuple[str, Recovered]]:
    """Train, and tell each step. Why it ended early ("" if it did not), and the best of it."""
    p = setup.params
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
    run = Recovery(whole.shell, whole.masks(), pieces, split(cut(setup.texts.held_out), 256), settings)
    steps = run.steps()
    ending = Ending(setup.context)
    try:
        for step in steps:
            if step is None:
                yield None
            else:
                yield _step(step)
                yield progress("fine-tuning", step.step, step.steps)
            if ending.due():
                run.end()
    finally:
        steps.close()
        ending.going = False
    found = yield from relay(run.recovering(), paused)
    return ending.why(found.ended), found


def _counted(whole: Whole, found: Recovered) -> Made[tuple[int, int]]:
    """Weights that are not 0 after the fine-tune, and those of them that were pruned."""
    kept = revived = 0
    for name, mask in whole.masks().items():
        runs = out_in(found.shell.get_submodule(name)) != 0
        kept += int(runs.sum())
        revived += int(runs.logical_and_(~mask.to(runs.device)).sum())
        yield None
    return kept, revived


def split(windows: list[list[int]], size: int) -> list[list[int]]:
    """Pieces of the windows, two tokens or more each."""
    pieces = [window[i : i + size] for window in windows for i in range(0, len(window), size)]
    return [piece for piece in pieces if len(piece) > 1]


def _held(revived: int, found: Recovered) -> Finding:
    words = "" if not revived else f"{revived:,} pruned weights are no longer 0."
    detail = {"fine_tuned_steps": found.steps, "fine_tuned_weights": found.trained, "revived": revived}
    return Finding(HELD, "different" if revived else "equal", words, detail)


def _step(step: TrainStep) -> events.RecoveryStep:
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
