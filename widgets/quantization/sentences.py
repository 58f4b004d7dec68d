"""The page's words that depend on the run, and numbers as they are written on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lab.events.quantization import Setting
from lab.experiments.quantization.choices import METHODS, MISTAKES
from widgets.format import NOTHING, format_number
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
BROKEN = "Broken on purpose: {}. The proof at the foot of the page should catch it."
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def intro(state: QuantizationState) -> list[str]:
    """What the task does, on which texts, and the mistake of a run that is broken on purpose."""
    said = [INTROS[state.task]]
    texts = state.texts.texts if state.texts else ()
    if texts:
        parts = [f"{t.role} text: {t.tokens:,} tokens of {t.name} ({t.hash})" for t in texts]
        said.append(f"{'; '.join(parts)}.".capitalize() if len(parts) == 1 else f"{capital('; '.join(parts))}.")
    mistake = state.param("break_run", "nothing")
    if mistake in MISTAKES and mistake != "nothing":
        said.append(BROKEN.format(MISTAKES[mistake]))
    return said


def capital(text: str) -> str:
    """With a capital letter at its start, the rest as it is."""
    return text[:1].upper() + text[1:]


def number(value: float | None, digits: int = 3) -> str:
    """Three digits; small ones as "3.1 × 10⁻⁶", no error at all as "0", an infinite one as "∞"."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value and abs(value) < 1e-3:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa} × 10{str(int(power)).translate(SUPERSCRIPT)}".replace("-", "−", 1)
    return format_number(value, digits).replace("-", "−")


def signed(value: float | None, digits: int = 3) -> str:
    """The same with its sign always written."""
    written = number(value, digits)
    return written if value is None or not value > 0 else f"+{written}"


def decibels(value: float | None) -> str:
    """A signal-to-noise ratio: "17.7 dB", "∞" where there is no error."""
    if value is None or math.isnan(value):
        return NOTHING
    return number(value) if math.isinf(value) else f"{value:.1f} dB".replace("-", "−")


def bits(value: float | None) -> str:
    """Bits of a weight, of which a quarter or an eighth matters: "4.25", "4.125"."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.4g}"


def percent(share: float | None, digits: int = 2) -> str:
    """A relative error or a share: "13.1 %"; tiny ones keep their first digits."""
    if share is None or not math.isfinite(share):
        return NOTHING if share is None or math.isnan(share) else "∞"
    return f"{number(share * 100, digits + 1)} %" if share else "0 %"


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
