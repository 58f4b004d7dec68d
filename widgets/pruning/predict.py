"""What a visitor guesses before the `pruning` page: which choice of weights keeps the output best."""

from __future__ import annotations

from lab.events import Recording
from lab.events.pruning import PruneErrors
from lab.strings import Strings
from widgets.format import format_share
from widgets.front.prediction import Prediction
from widgets.numbers import percent


def prediction(recording: Recording, words: Strings) -> Prediction | None:
    """The question, from the errors of the run's first matrix; None where fewer than two methods chose."""
    found = [e for e in recording.events if isinstance(e, PruneErrors) and e.setting.method != "random"]
    mine = [e for e in found if (e.layer, e.projection) == (found[0].layer, found[0].projection)]
    if len(mine) < 2:
        return None
    best = min(mine, key=lambda e: e.heldout_error)
    nearest = min(mine, key=lambda e: e.weight_error)
    labels = tuple(e.setting.label.partition(",")[0] for e in mine)
    figures = ", ".join(f"{label} {percent(e.heldout_error)}" for label, e in zip(labels, mine, strict=True))
    key = "pruning.prediction"
    why = words(f"{key}.why", figures=figures)
    return Prediction(
        text=words(
            f"{key}.text",
            sparsity=format_share(best.sparsity),
            projection=best.projection,
            layer=best.layer,
            nearest=labels[mine.index(nearest)],
            error=percent(nearest.weight_error),
        ),
        options=labels,
        answer=mine.index(best),
        figure=f"{labels[mine.index(best)]}: {percent(best.heldout_error)}",
        why=why if best is nearest else f"{why} {words(f'{key}.because')}",
        badge="MEASURED",
    )
