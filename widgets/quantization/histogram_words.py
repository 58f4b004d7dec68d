"""The words around the histograms: where they come from, and what the row on screen says."""

from __future__ import annotations

from typing import Any

from lab.events.quantization import ErrorHistogram
from lab.experiments.quantization.choices import GRIDDED, KINDS
from widgets.quantization.histogram_fields import QUICK
from widgets.quantization.sentences import method_words, share_words

HINT = "The dots below the line are the weights with the largest errors: click one to see its group."


def how(values: dict[str, Any], method: str) -> str:
    """A method at the values on screen."""
    if method not in GRIDDED:
        return method_words(method)
    kind = KINDS.get(values["kind"], values["kind"])
    return f"{method_words(method)}, {values['bits']} bits, {kind}"


def source_words(
    values: dict[str, Any], asked: str, *, of_run: bool, why: str, there: bool, own: ErrorHistogram | None
) -> str:
    """Whether the histograms are of the run or asked for as the sliders move, and of which method.

    Args:
        asked: the method that the question names.
        why: why there is no answer; "" if there is one or it is on its way, which `there` tells.
        own: the run's own histogram that stands beside the others, if there is one.
    """
    what = f"layer {values['layer']} {values['projection']}"
    if of_run:
        return f"MEASURED in the run: {what}, {how(values, values['method'])}."
    if why:
        return f"{why} Shown is what was asked before."
    said = f"MEASURED on the model as you move the sliders, not in the run: {what}, {how(values, asked)}, "
    said += "nothing clipped."
    if values["method"] not in QUICK:
        name = method_words(values["method"])
        first = f"{name} takes a run and cannot follow the sliders: "
        if own is not None:
            first += f"the run's own histogram stays (MEASURED in the run: {own.setting.label}), beside it "
        said = f"{first}{'' if own else 'here '}is round to nearest for comparison. {said}"
    return said if there else f"{said} …"


def notes_of(histogram: ErrorHistogram | None, *, marked: bool) -> list[str]:
    """What the row on screen says; `marked`: dots can be clicked."""
    if histogram is None:
        return []
    said = f"{share_words(histogram.setting.share)}: " if histogram.setting.share else ""
    scales = f"{histogram.groups:,} scales for " if histogram.groups else ""  # counted on even grids alone
    said += f"{scales}{histogram.rows * histogram.columns:,} weights."
    if histogram.max_error == 0:
        said += " Every weight came back exactly."
    return [said[:1].upper() + said[1:], *([HINT] if marked else []), *histogram.notes]
