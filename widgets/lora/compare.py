"""What two runs of `lora` have to compare, for each of its tasks."""

from __future__ import annotations

import numpy as np

from widgets.comparison.told import (
    BYTES,
    COUNT,
    DERIVED,
    MEASURED,
    MS,
    NUMBER,
    SHARE,
    SIZE,
    Line,
    Quantity,
    Told,
    collect,
    figure,
)
from widgets.comparison.training import loss_lines
from widgets.comparison.variants import Parts
from widgets.comparison.words import divergence_figures, word_figures, word_lines, word_texts
from widgets.lora.state import LoraState

STATE = LoraState


def told(state: LoraState) -> Told:
    """Figures and lines of the run's task, and of its adapter, which every task has."""
    match state.task:
        case "train":
            figures, lines, texts = _train(state)
        case "swap":
            figures, lines, texts = _swap(state)
        case "merge":
            figures, lines, texts = _merge(state)
        case _:
            figures, lines, texts = [], [], []
    other = state.other_text.divergence if state.other_text else None
    return collect(
        [*figures, *word_figures(state), *divergence_figures("other", "on other text", other), *_adapter(state)],
        [*lines, *word_lines(state), *_map(state)],
        [*texts, *word_texts(state)],
        state.task,
    )


def _adapter(state: LoraState) -> list[Quantity | None]:
    own = state.own
    return [
        figure("rank", "rank", own.rank if own else None, COUNT, DERIVED),
        figure("scale", "scale", own.scale if own else None, NUMBER, DERIVED),
        figure("parameters", "parameters in A and B", own.parameters if own else None, COUNT, DERIVED),
        figure("bytes", "A and B in memory", own.bytes if own else None, BYTES, DERIVED),
    ]


def _map(state: LoraState) -> list[Line]:
    """How large the update of the run's own adapter is, by layer: the mean over its projections."""
    found = next(iter(state.maps.values()), None)
    if found is None:
        return []
    norms = found.norms.numpy().astype(np.float64)
    points = tuple((i, float(np.nanmean(row))) for i, row in enumerate(norms) if np.isfinite(row).any())
    return [Line("update", "Size of the update by layer", "layer", "|ΔW| / |W|, mean", points, MEASURED)]


def _train(state: LoraState) -> Parts:
    done, data = state.trained, state.data
    text = f"task {data.task}, data {data.hash[:6]}" if data else ""
    best = min((s.heldout_loss for s in state.training if s.heldout_loss is not None), default=None)
    figures = [
        figure("best", "least held-out loss, nats a token", best, SIZE, basis=text),
        figure("before", "held-out loss before", done.heldout_before if done else None, SIZE, basis=text),
        figure("after", "held-out loss of the adapter kept", done.heldout_after if done else None, SIZE, basis=text),
        figure("best_step", "best step", done.best_step if done else None, COUNT),
        figure("steps", "steps done", done.steps if done else None, COUNT),
        figure("seconds", "time of the training", done.seconds * 1000 if done else None, MS),
    ]
    return figures, loss_lines(state.training, text), []


def _swap(state: LoraState) -> Parts:
    rows = state.swaps
    switched = [row.switch_ms for row in rows]
    figures = [
        figure("switch", "switching an adapter, median", float(np.median(switched)) if switched else None, MS),
        figure("rows", "prompts answered", len(rows) or None, COUNT),
    ]
    points = tuple((row.index + 1, row.switch_ms) for row in rows)
    return figures, [Line("switch", "Time of a switch", "row", "ms a switch", points, timed=True)], []


def _merge(state: LoraState) -> Parts:
    figures: list[Quantity | None] = []
    for found in state.merges:
        figures += [
            figure(f"lost {found.kind}", f"lost of the update: {found.kind}", found.lost, SHARE),
            figure(f"decode {found.kind}", f"decode step, merged: {found.kind}", found.decode_ms, MS),
        ]
    lines = [
        Line(name, title, "base", unit, tuple((f.kind, getattr(f, name)) for f in state.merges))
        for name, title, unit in (
            ("lost", "What merging loses of the update", "|applied − ΔW|² / |ΔW|²"),
            ("max_logit_difference", "Largest difference of a logit", "merged against unmerged"),
        )
    ]
    return figures, lines, []
