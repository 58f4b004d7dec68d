"""The page's words that depend on the run."""

from __future__ import annotations

from lab.experiments.pruning.choices import MISTAKES
from widgets.intro import intro as opening
from widgets.pruning.state import PruningState

INTROS = {
    "masks": "Part of the weights of one matrix are set to zero, the same share by several methods. Here is every "
    "weight that stays, where the methods disagree, and what the layer’s output loses.",
    "curve": "Each point is the whole model with a share of its weights gone: how far its predictions move on text "
    "that no method saw.",
    "words": "The same prompt by the dense and by the pruned model, token by token, and where the two part.",
    "savings": "A zero is a number like any other to a dense kernel. What pruning saves in bytes is counted; what it "
    "saves in time is measured beside the dense model, step by step in one run.",
    "recover": "The mask is held and the weights that stay are trained for a few steps: how much of the loss comes "
    "back?",
}


def intro(state: PruningState) -> list[str]:
    """What the task does, on which texts, and the mistake of a run that is broken on purpose."""
    return opening(state, INTROS, MISTAKES)
