"""What two runs of `quantization` have to compare, for each of its tasks."""

from __future__ import annotations

import math

from widgets.comparison.told import (
    BYTES,
    COUNT,
    DERIVED,
    ERROR,
    NUMBER,
    SHARE,
    SIZE,
    Line,
    Quantity,
    Told,
    collect,
    figure,
    matrix_words,
    mean,
)
from widgets.comparison.variants import Parts, variant_parts
from widgets.comparison.words import divergence_figures, held_out, word_figures, word_lines, word_texts
from widgets.quantization.state import QuantizationState

STATE = QuantizationState


def told(state: QuantizationState) -> Told:
    """Figures and lines of the run's task."""
    match state.task:
        case "map":
            figures, lines, texts = _map(state)
        case "pareto":
            figures, lines, texts = _pareto(state)
        case "words":
            figures, lines, texts = word_figures(state), word_lines(state), word_texts(state)
        case "packed":
            figures, lines, texts = variant_parts(state.label, state.packed_figures, state.packed)
        case _:
            figures, lines, texts = _layer(state)
    return collect([*figures, *_whole(state)], lines, texts, state.task)


def _whole(state: QuantizationState) -> list[Quantity | None]:
    """The whole model by the run's own setting, where it was counted or measured."""
    covered = state.coverage if state.task != "layer" else None  # a study covers a few matrices
    own = [e for e in state.model_errors if e.setting == state.setting]
    at = next((e for e in own if e.whole), own[0] if own else None)
    scope = "the whole model" if at is None or at.whole else at.scope
    return [
        figure("model_bytes", "whole model as packed bits", covered.model_bytes if covered else None, BYTES, DERIVED),
        *divergence_figures(f"own {scope}", scope, at.divergence if at else None),
    ]


def _layer(state: QuantizationState) -> Parts:
    """Each studied matrix by the setting asked for: errors of weights and outputs."""
    text = held_out(state)
    chosen = [h for h in state.histograms if h.chosen]
    errors = [e for e in state.layer_errors if e.setting == state.setting]
    of = matrix_words((e.layer, e.projection) for e in errors)
    made = matrix_words((h.layer, h.projection) for h in chosen)
    weight_error, output_error = mean([e.weight_error for e in errors]), mean([e.heldout_error for e in errors])
    largest = max((h.max_error for h in chosen), default=None)
    figures = [
        figure("bits", "bits a weight, scales and all", mean([h.bits_per_weight for h in chosen]), SIZE, DERIVED),
        figure("weight_error", "weight error, mean", weight_error, ERROR, matrices=of),
        figure("output_error", "output error, held-out, mean", output_error, ERROR, basis=text, matrices=of),
        figure("max_error", "largest error of a weight", largest, SIZE, matrices=made),
        figure("snr", "signal to noise, dB, mean", mean([h.snr_db for h in chosen]), NUMBER, matrices=made),
        figure("exact", "weights without an error", mean([h.exact for h in chosen]), SHARE, matrices=made),
    ]
    names = [f"layer {e.layer} {e.projection}" for e in errors]
    lines = [
        Line(name, title, "matrix", "relative error, %", tuple(zip(names, values, strict=True)), basis=basis)
        for name, title, values, basis in (
            ("weight_error", "Weight error of each matrix", [_percent(e.weight_error) for e in errors], ""),
            (
                "output_error",
                "Output error of each matrix, held-out",
                [_percent(e.heldout_error) for e in errors],
                text,
            ),
        )
    ]
    return figures, lines, []


def _map(state: QuantizationState) -> Parts:
    """Each layer: its mean errors, and how much the model suffers from it alone."""
    cells = state.cells()
    layers = sorted({matrix.layer for matrix in cells})
    alone = sorted(state.sensitivities(), key=lambda s: s.layer)

    def mean_of(name: str) -> tuple[tuple[float, float], ...]:
        values = ((n, mean([getattr(c, name) for m, c in cells.items() if m.layer == n])) for n in layers)
        return tuple((n, 100 * v) for n, v in values if v is not None)

    of = matrix_words(cells)
    weight_error = mean([c.weight_error for c in cells.values()])
    output_error = mean([c.output_error for c in cells.values()])
    figures = [
        figure("weight_error", "weight error, mean", weight_error, ERROR, matrices=of),
        figure("output_error", "output error, mean", output_error, ERROR, matrices=of),
        figure("bits", "bits a weight, mean", mean([c.bits_per_weight for c in cells.values()]), SIZE, DERIVED),
        figure("matrices", "matrices measured", len(cells) or None, COUNT),
    ]
    lines = [
        Line("weight_error", "Weight error by layer", "layer", "relative error, %, mean", mean_of("weight_error")),
        Line("output_error", "Output error by layer", "layer", "relative error, %, mean", mean_of("output_error")),
        Line(
            "sensitivity",
            "What one layer alone costs the model",
            "layer",
            "KL, nats",
            tuple((s.layer, s.divergence.kl) for s in alone),
            basis=held_out(state),
        ),
    ]
    return figures, lines, []


def _pareto(state: QuantizationState) -> Parts:
    """Each setting: its bits and what it loses."""
    points = [(p, p.divergence) for p in state.pareto if p.divergence is not None]
    own = next(((p, d) for p, d in points if p.chosen), None)
    figures = [
        figure("bits", "bits a weight, the run's own setting", own[0].bits_per_weight if own else None, SIZE, DERIVED),
        figure("bytes", "bytes, the run's own setting", own[0].model_bytes if own else None, BYTES, DERIVED),
        *divergence_figures("own", "the run's own setting", own[1] if own else None),
    ]
    lines = [
        Line(
            "pareto",
            "Bits against loss, all settings",
            "bits a weight",
            "KL, nats",
            tuple(sorted((p.bits_per_weight, d.kl) for p, d in points)),
            joined=False,
            basis=held_out(state),
        )
    ]
    return figures, lines, []


def _percent(value: float | None) -> float:
    return math.nan if value is None else 100 * value
