"""What two runs of `pruning` have to compare, for each of its tasks."""

from __future__ import annotations

from lab.events.pruning import PruneErrors
from widgets.comparison.told import (
    COUNT,
    ERROR,
    FACTOR,
    MS,
    SHARE,
    Line,
    Quantity,
    Told,
    collect,
    figure,
    matrix_words,
    mean,
)
from widgets.comparison.training import loss_lines
from widgets.comparison.variants import Parts, variant_parts
from widgets.comparison.words import divergence_figures, held_out, word_figures, word_lines, word_texts
from widgets.pruning.state import PruningState, magnitude_of

STATE = PruningState


def told(state: PruningState) -> Told:
    """Figures and lines of the run's task; the whole pruned model by layer, where it was made."""
    match state.task:
        case "curve":
            figures, lines, texts = _curve(state)
        case "words":
            figures, lines, texts = word_figures(state), word_lines(state), word_texts(state)
        case "savings":
            figures, lines, texts = variant_parts(state.label, state.timed_figures, state.timed)
        case "recover":
            figures, lines, texts = _recover(state)
        case _:
            figures, lines, texts = _masks(state)
    return collect([*figures, *_kept(state)], [*lines, *_by_layer(state)], texts, state.task)


def _masks(state: PruningState) -> Parts:
    """Each studied matrix by the method asked for."""
    chosen = [m for m in state.masks if m.chosen]
    errors = [e for e in state.errors if e.setting == state.setting]
    text = held_out(state)
    kept, weights = sum(m.kept for m in chosen), sum(m.rows * m.columns for m in chosen)
    names = [f"layer {e.layer} {e.projection}" for e in errors]
    of = matrix_words((e.layer, e.projection) for e in errors)
    made = matrix_words((m.layer, m.projection) for m in chosen)
    weight_error, output_error = mean([e.weight_error for e in errors]), mean([e.heldout_error for e in errors])
    to_magnitude = mean([_to_magnitude(state, e) for e in errors])
    beside = "output error against magnitude's, held-out, mean"
    figures = [
        figure("kept", "weights kept", kept / weights if weights else None, SHARE),
        figure("weight_error", "weight error, mean", weight_error, ERROR, matrices=of),
        figure("output_error", "output error, held-out, mean", output_error, ERROR, basis=text, matrices=of),
        figure("to_magnitude", beside, to_magnitude, FACTOR, basis=text, matrices=of),
        figure("ms", "time to make a mask, mean", mean([m.ms for m in chosen]), MS, matrices=made),
    ]
    lines = [
        Line(
            "weight_error",
            "Weight error of each matrix",
            "matrix",
            "relative error, %",
            tuple((name, 100 * e.weight_error) for name, e in zip(names, errors, strict=True)),
        ),
        Line(
            "output_error",
            "Output error of each matrix, held-out",
            "matrix",
            "relative error, %",
            tuple((name, 100 * e.heldout_error) for name, e in zip(names, errors, strict=True)),
            basis=text,
        ),
        Line(
            "kept",
            "Weights kept of each matrix",
            "matrix",
            "kept, %",
            tuple((f"layer {m.layer} {m.projection}", 100 * m.kept / (m.rows * m.columns)) for m in chosen),
        ),
    ]
    return figures, lines, []


def _to_magnitude(state: PruningState, own: PruneErrors) -> float | None:
    """The held-out error of one matrix / that of magnitude there, as its page has it; None for magnitude itself."""
    base = magnitude_of(e for e in state.errors if (e.layer, e.projection) == (own.layer, own.projection))
    if base is None or own.setting.method == base.setting.method or not base.heldout_error:
        return None
    return own.heldout_error / base.heldout_error


def _curve(state: PruningState) -> Parts:
    """The method asked for, over the sparsities."""
    own = state.setting
    points = [(p, p.divergence) for p in state.curve if p.divergence is not None]
    mine = [(p, d) for p, d in points if own is None or p.setting.method == own.method]
    at = next((d for p, d in points if p.chosen), None)
    lines = [
        Line(
            name,
            title,
            "sparsity, %",
            unit,
            tuple(sorted((100 * p.sparsity, value) for p, d in mine if (value := getattr(d, name)) is not None)),
            basis=held_out(state),
        )
        for name, title, unit in (
            ("kl", "Loss by sparsity, the run's own method", "KL(dense ‖ pruned), nats"),
            ("perplexity", "Perplexity by sparsity, the run's own method", "perplexity"),
        )
    ]
    return list(divergence_figures("own", "the run's own setting", at)), lines, []


def _recover(state: PruningState) -> Parts:
    """The fine-tune with the mask held: losses by step, before and after."""
    done = state.recovered
    figures = [
        *divergence_figures("pruned", "pruned", done.pruned if done else None),
        *divergence_figures("recovered", "recovered", done.recovered if done else None),
        figure("best_step", "best step", done.best_step if done else None, COUNT),
    ]
    return figures, loss_lines(state.recovery, held_out(state)), []


def _kept(state: PruningState) -> list[Quantity | None]:
    """Of the whole model, where it was pruned."""
    setting = state.setting
    found = state.cells(setting) if setting else {}
    weights = sum(c.weights for c in found.values())
    share = sum(c.kept for c in found.values()) / weights if weights else None
    error = mean([c.weight_error for c in found.values()])
    return [
        figure("model_kept", "weights kept of all pruned matrices", share, SHARE),
        figure("model_error", "weight error, mean of all matrices", error, ERROR, matrices=matrix_words(found)),
    ]


def _by_layer(state: PruningState) -> list[Line]:
    """Error and share kept by layer of the whole model, where it was pruned."""
    setting = state.setting
    cells = state.cells(setting) if setting else {}
    layers: dict[int, list[tuple[float, int, int]]] = {}
    for matrix, cell in cells.items():
        layers.setdefault(matrix.layer, []).append((cell.weight_error, cell.kept, cell.weights))
    found = sorted(layers.items())
    errors = [(layer, mean([e for e, _, _ in row])) for layer, row in found]
    kept = [(layer, 100 * sum(k for _, k, _ in row) / max(1, sum(w for _, _, w in row))) for layer, row in found]
    return [
        Line(
            "layer_error",
            "Weight error by layer",
            "layer",
            "relative error, %, mean",
            tuple((layer, 100 * e) for layer, e in errors if e is not None),
        ),
        Line("layer_kept", "Weights kept by layer", "layer", "kept, %", tuple(kept)),
    ]
