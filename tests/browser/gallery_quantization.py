"""The views that the `quantization` page alone has, drawn from simulated runs."""

from __future__ import annotations

from typing import Any

from pages import drawn, fold_all
from quantization_layer_sim import histogram
from quantization_spoken import words_run

from widgets.action_row import Action, ActionRow
from widgets.controls import Controls
from widgets.coverage_bar import CoverageBar, Part
from widgets.histogram_rows import HistogramRows
from widgets.quantization.counted import HEADS, rows_of
from widgets.quantization.other_models import NONE_HERE
from widgets.quantization.state import QuantizationState
from widgets.quantization.words_section import WordsSection
from widgets.text import Words
from widgets.view import View

SIZES = ["row", "64", "16"]


def quantization_views() -> dict[str, View]:
    """Histograms, a slider over choices, and the bar of all parameters."""
    rows, reach = rows_of([histogram(size) for size in SIZES])
    histograms = HistogramRows(
        label="Errors at each group size", axis="error of a weight", first="group size", picture="histograms"
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
    offers = ActionRow(label="Run the method on screen")
    offers.show([Action("run", "Run GPTQ at groups of 32, 4 bits", "A new run"), Action("other", "Run on <b>x</b>")])
    note = Words(css_class="lab-note-box", rich=True)
    note.say(("p", NONE_HERE))
    found = {"histograms": histograms, "steps": steps, "coverage": bar, "word_pairs": _word_pairs()}
    return {**found, "offers": offers, "note_box": note}


def _word_pairs() -> View:
    state = fold_all(QuantizationState, words_run())
    section = drawn(WordsSection, state)
    return section._pairs
