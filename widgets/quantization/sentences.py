"""The page's words that depend on the run, and numbers as they are written on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.events.quantization import Setting
from lab.experiments.quantization.choices import METHODS, MISTAKES
from widgets.format import NOTHING
from widgets.intro import intro as opening
from widgets.quantization.state import QuantizationState

INTROS = {
    "layer": "The weights of one matrix are put on a few levels, group by group. What they were and what they became "
    "differ by an error: here are all of them, for every group size, and what they do to the layer's output and to "
    "the model.",
    "map": "Every matrix of the model is quantized the same way, then each layer alone: some bear it, some do not.",
    "pareto": "Each point is the whole model at one setting: what a weight costs, scales and all, against how far the "
    "model's predictions move.",
    "words": "The same prompt with dense and with quantized weights, token by token, and where the two part.",
    "packed": "Here the codes are what memory holds and the kernels read: files, memory and speed are measured beside "
    "the dense model, step by step in one run.",
}


def intro(state: QuantizationState) -> list[str]:
    """What the task does, on which texts, and the mistake of a run that is broken on purpose."""
    return opening(state, INTROS, MISTAKES)


def bits(value: float | None) -> str:
    """Bits of a weight, of which a quarter or an eighth matters: "4.25", "4.125"."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.4g}"


def share_words(share: str, *, short: bool = False) -> str:
    """Which weights have a scale in common: "groups of 64", "one scale a row"."""
    if share in ("row", "tensor"):
        return f"one scale a {'matrix' if share == 'tensor' else share}"
    size, _, rest = share.partition("+")
    return f"groups of {size}{', the last smaller' if rest and not short else ' + rest' if rest else ''}"


def method_words(method: str) -> str:
    """A method's name for a person."""
    return str(METHODS.get(method, method))  # type: ignore[call-overload]


def setting_words(setting: Setting) -> str:
    """What a row of the histograms stands for, in short: the group size where there is one, else the method."""
    return share_words(setting.share, short=True) if setting.share else setting.label


def shares_of(used: Sequence[int]) -> list[float]:
    """The share of all weights, 0 to 1, that each level takes."""
    total = max(1, sum(used))
    return [count / total for count in used]
