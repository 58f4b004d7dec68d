"""The views that the `quantization` page alone has, drawn from simulated runs."""

from __future__ import annotations

import threading
from typing import Any

from quantization_layer_sim import histogram
from quantization_spoken import words_run

from widgets.controls import Controls
from widgets.coverage_bar import CoverageBar, Part
from widgets.experiment import Desk
from widgets.histogram_rows import HistogramRows
from widgets.quantization.counted import HEADS, rows_of
from widgets.quantization.state import QuantizationState
from widgets.quantization.words_section import WordsSection
from widgets.view import View

SIZES = ["row", "64", "16"]


def quantization_views() -> dict[str, View]:
    """Histograms, a slider over choices, and the bar of all parameters."""
    rows, reach = rows_of([histogram(size) for size in SIZES])
    histograms = HistogramRows(
        label="Errors at each group size", axis="error of a weight", first="scale for", picture="histograms"
    )
    histograms.show(rows, HEADS, low=-reach, high=reach, selected=rows[1].id)
    field: dict[str, Any] = {
        "type": "string",
        "title": "Group size",
        "enum": SIZES,
        "labels": SIZES,
        "hint": "slider",
        "group": "main",
    }
    steps = Controls(schema={"properties": {"size": field}}, values={"size": "64"})
    bar = CoverageBar()
    parts = [("7 × projections", 0.78, True), ("embedding", 0.21, False), ("norms", 0.01, False)]
    bar.show([Part(name, share, on, f"{name}, {share:.0%}") for name, share, on in parts], "packed")
    return {"histograms": histograms, "steps": steps, "coverage": bar, "word_pairs": _word_pairs()}


def _ask(*_args: Any, **_keywords: Any) -> None:
    """Nothing is asked of a still page."""


def _word_pairs() -> View:
    state = QuantizationState()
    for event in words_run():
        state.fold(event)
    section = WordsSection(Desk(ask=_ask, touch=lambda: None, lock=threading.RLock()))
    section.render(state, state.steps - 1, live=False)
    return section._pairs
