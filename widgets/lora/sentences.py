"""The page's words that depend on the run."""

from __future__ import annotations

from lab.experiments.lora.choices import MISTAKES
from widgets.intro import intro as opening
from widgets.lora.state import LoraState
from widgets.numbers import percent

INTROS = {
    "compare": "The same prompt by the base, with the adapter on, and with the adapter merged into the weights: what "
    "a few hundred thousand numbers change, and that merging changes nothing more.",
    "train": "Two thin matrices are trained beside each chosen weight matrix; the base itself is frozen. Watch the "
    "loss fall, then read what the model says before and after.",
    "swap": "Several adapters lie beside one base. Switching is a change of a name: nothing is loaded again, and "
    "going back gives the same words.",
    "merge": "Merging adds the update into the weights. In fp32 nothing is lost; in fewer bits a part of the update is "
    "rounded away.",
}


def intro(state: LoraState) -> list[str]:
    """What the task does, on which texts, and the mistake of a run that is broken on purpose."""
    return opening(state, INTROS, MISTAKES)


def unbroken(share: float) -> str:
    """A share that no line breaks: "8.38 %"."""
    return percent(share).replace(" ", "\u00a0")


def scale_words(alpha: float, rank: int, rslora: bool) -> str:
    """How the scale comes about: "16 / 8"."""
    return f"{alpha:g} / √{rank}" if rslora else f"{alpha:g} / {rank}"
