"""How much of the model is really quantized, what was skipped and why, and the bits of each layer."""

from __future__ import annotations

import ipywidgets as ipw

from lab.events.quantization import Coverage, CoverageRow
from widgets.coverage_bar import CoverageBar, Part
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_bytes, format_count
from widgets.numbers import capital, percent
from widgets.quantization.figures import coverage_figures
from widgets.quantization.layer_bits_plot import LayerBitsPlot
from widgets.quantization.state import QuantizationState
from widgets.quantization.tables import coverage_table
from widgets.section import Section, heading, section
from widgets.text import Words


class CoverageSection(Section[QuantizationState]):
    """One bar of all parameters, figures, what stayed dense and why, bits by layer."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._bar = CoverageBar()
        self._figures = FigureRow()
        self._why = Words(css_class="lab-caption")
        self._layer_words = Words(css_class="lab-caption")
        self._layers: LayerBitsPlot | None = None
        self._layer_box = ipw.VBox([])
        self._table = DataTable(summary="Table of the coverage")
        self.widget = section(
            heading(
                "How much of the model is that?",
                "All parameters of the model, each tensor once. What is quantized, what stays dense, and why.",
            ),
            self._bar,
            self._figures,
            self._why,
            self._layer_box,
            self._table,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        """Once it was counted."""
        return state.coverage is not None

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        """Draw the newest count."""
        del upto
        coverage = state.coverage
        if coverage is None:
            return
        self._bar.show([_part(row, coverage) for row in coverage.rows], coverage.truth)
        # The map's mixed precision shows cost and size with the dense ones beside them: not twice on a page.
        elsewhere = state.task == "map" and bool(coverage.layer_bits)
        self._figures.show(coverage_figures(coverage)[: 1 if elsewhere else None])
        self._why.say(("p", f"Counted for {coverage.setting.label}."), *(("p", text) for text in reasons(coverage)))
        # The map has a picture of its own for them.
        mixed = sum(bits > 0 for bits in coverage.layer_bits) > 1 and state.task != "map"
        if mixed:
            self._layers = self._layers or LayerBitsPlot()
            self._layers.show(coverage.layer_bits, coverage.layer_bytes)
            self._layer_words.say(("p", _layer_words(coverage)))
        children = (self._layers, self._layer_words) if mixed and self._layers else ()
        if self._layer_box.children != children:
            self._layer_box.children = children
        if not live:
            self._table.show(coverage_table(state))

    def tables(self, state: QuantizationState) -> list[Table]:
        """Every kind of matrix."""
        return [coverage_table(state)]


def _part(row: CoverageRow, coverage: Coverage) -> Part:
    share = row.parameters / coverage.parameters if coverage.parameters else 0.0
    state = "quantized" if row.quantized else f"dense: {row.reason}"
    return Part(row.name, share, row.quantized, f"{row.name}, {percent(share)} of the parameters, {state}")


def reasons(coverage: Coverage) -> list[str]:
    """Why something stayed dense, what has the same reason together."""
    grouped: dict[str, list[CoverageRow]] = {}
    for row in coverage.rows:
        if not row.quantized:
            grouped.setdefault(row.reason or "no reason was given", []).append(row)
    said = []
    for reason, rows in grouped.items():
        names = ", ".join(dict.fromkeys(row.name for row in rows))
        count, size = sum(row.parameters for row in rows), sum(row.bytes for row in rows)
        said.append(f"Dense: {names} ({format_count(count)} parameters, {format_bytes(size)}). {capital(reason)}.")
    return said


def _layer_words(coverage: Coverage) -> str:
    bits = sorted({b for b in coverage.layer_bits if b})
    dense = sum(not b for b in coverage.layer_bits)
    said = f"DERIVED. Layer 0 to {len(coverage.layer_bits) - 1}: "
    said += f"{bits[0]:g} bits a code" if len(bits) == 1 else f"{bits[0]:g} to {bits[-1]:g} bits a code"
    beside = f", {dense} layers dense" if dense else ""
    return f"{said}{beside}; quantized matrices take {format_bytes(sum(coverage.layer_bytes))}."
