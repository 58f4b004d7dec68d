"""The stages of each task of the `pruning` experiment, by the words of their progress."""

from __future__ import annotations

from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.settings import Scheme

READING = ("reading the calibration text", "reading the held-out text")
CHECKING = "checking against generate()"


def stages_of(params: PruningParams, schemes: list[Scheme]) -> list[str]:
    """What the run will do, in order.

    Args:
        schemes: that the task tries, in order, where it tries several.
    """
    match params.task:
        case "masks":
            return _masks(params, schemes)
        case "curve":
            return [scheme.setting.label for scheme in schemes]
        case "words":
            return ["dense words", "pruning", "*: words", CHECKING]
        case "savings":
            removing = [] if params.method == "rows" else ["removing rows"]
            lost = [] if params.method == "rows" else ["what the zeros lose"]
            return ["pruning", *removing, "decoding", *lost, "what the removed rows lose", CHECKING]
        case _:
            return ["pruning", "before the fine-tune", "fine-tuning", "after the fine-tune"]


def _masks(params: PruningParams, schemes: list[Scheme]) -> list[str]:
    """Magnitude first of each matrix; of the first matrix before any text is read."""
    magnitude = f"*: {schemes[0].by('magnitude').setting.label}"
    others: list[str] = []
    for scheme in schemes:
        if scheme.method not in ("magnitude", "global_magnitude"):
            others.append(f"*: {scheme.setting.label}")
        if scheme is schemes[0] and scheme.method == "sparsegpt":
            others.append("replaying")
    everywhere = ["comparing the weights of all layers"] if params.method == "global_magnitude" else []
    more = [magnitude, *others] * (len(params.layers) - 1)
    return [magnitude, *READING, *everywhere, *others, *more]
