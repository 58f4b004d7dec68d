"""What a sliding window can take back. No torch here: a form's limits follow from it."""

from __future__ import annotations

from lab.events import ModelFacts


def most_gamma(facts: ModelFacts) -> int | None:
    """Proposed tokens that a model can take back in one round; None if there is no limit.

    A full sliding window keeps window - 1 positions. A round sends the proposed tokens and the one before them through
    it; what is rejected is taken out again, so all of them must still be there.
    """
    windows = [layer.window for layer in facts.layers if layer.kind == "sliding" and layer.window is not None]
    return max(0, min(windows) - 2) if windows else None
