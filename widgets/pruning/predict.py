"""What a visitor guesses before the `pruning` page: which choice of weights keeps the output best."""

from __future__ import annotations

from lab.events import Recording
from lab.events.pruning import PruneErrors
from widgets.format import format_share
from widgets.front.prediction import Prediction
from widgets.numbers import percent


def prediction(recording: Recording) -> Prediction | None:
    """The question, from the errors of the run's first matrix; None where fewer than two methods chose."""
    found = [e for e in recording.events if isinstance(e, PruneErrors) and e.setting.method != "random"]
    mine = [e for e in found if (e.layer, e.projection) == (found[0].layer, found[0].projection)]
    if len(mine) < 2:
        return None
    best = min(mine, key=lambda e: e.heldout_error)
    nearest = min(mine, key=lambda e: e.weight_error)
    labels = tuple(e.setting.label.partition(",")[0] for e in mine)
    figures = ", ".join(f"{label} {percent(e.heldout_error)}" for label, e in zip(labels, mine, strict=True))
    return Prediction(
        text=f"{format_share(best.sparsity)} of the weights of {best.projection}, layer {best.layer}, become zero. "
        f"{labels[mine.index(nearest)]} stays nearest to the weights themselves ({percent(nearest.weight_error)} off). "
        "Whose output is nearest?",
        options=labels,
        answer=mine.index(best),
        figure=f"{labels[mine.index(best)]}: {percent(best.heldout_error)}",
        why=f"Output error on held-out text: {figures}. The output depends on the inputs too: a small weight on a "
        "large input counts for more than a large weight on a small one."
        if best is not nearest
        else f"Output error on held-out text: {figures}.",
        badge="MEASURED",
    )
