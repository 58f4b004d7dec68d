"""The map of the model, each layer tried alone, and mixed precision by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lab.events import RunCancelled, RunFailed, RunFinished
from lab.events.quantization import Coverage, MapCell, ModelErrors, Sensitivity
from lab.experiments.quantization.choices import PROJECTIONS
from lab.experiments.quantization.params import missing_projections
from widgets.controls import Controls
from widgets.data_table import DataTable
from widgets.experiment import Desk, Table
from widgets.figure import FigureRow
from widgets.format import format_bytes, format_number, split_bytes, typeset_share
from widgets.quantization.map_plot import MEASURES, UNITS, MapPlot, Measure, value
from widgets.quantization.sensitivity_plot import BitsPlot, SensitivityPlot
from widgets.quantization.state import Matrix, QuantizationState
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.verdict import Verdict

_MEASURE: dict[str, Any] = {
    "properties": {
        "measure": {
            "type": "string",
            "title": "Colour",
            "enum": list(MEASURES),
            "labels": list(MEASURES.values()),
            "default": "weight",
            "hint": "segmented",
            "group": "main",
        }
    }
}


class MapSection(Section[QuantizationState]):
    """Layers across, projections down; the errors of a cell under the pointer and in the table."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.measure: Measure = "weight"
        self._verdict = Verdict()
        self._controls = Controls(schema=_MEASURE, values={"measure": self.measure})
        self._controls.on_values(self._chosen)
        self._controls.add_class("lab-inline")
        self._plot = MapPlot()
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all matrices")
        self.widget = section(self._verdict, self._controls, self._plot, self._caption, self._table)

    def _chosen(self, values: dict[str, Any]) -> None:
        if values.get("measure") in MEASURES:
            with self._desk.lock:
                self.measure = values["measure"]
            self._desk.touch()

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        cells = state.cells(upto)
        layers = layer_count(state, cells)
        planned = planned_cells(state, layers)
        self._controls.set_values({"measure": self.measure})
        self._verdict.show(*map_verdict(list(cells.values()), len(planned), live=live, end=state.end))
        self._plot.show(cells, layers, self.measure, planned if live else [])
        self._caption.say(("p", _caption(list(cells.values()), self.measure, live=live)))
        if not live:
            self._table.show(map_table(cells))

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        return (map_table(state.cells()),)

    def link(self) -> dict[str, Any]:
        return {"map_colour": None if self.measure == "weight" else self.measure}

    def restore(self, settings: dict[str, Any]) -> None:
        wanted = settings.get("map_colour")
        if isinstance(wanted, str) and wanted in MEASURES:
            self.measure = wanted


class SensitivitySection(Section[QuantizationState]):
    """One layer quantized at a time, on the layers' axis of the map."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._plot = SensitivityPlot()
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of all layers")
        self.widget = section(
            heading(
                "Which layers cannot bear it?",
                "All matrices of one layer are quantized and the others left alone. The words of the whole model are "
                "then compared with the dense model's.",
            ),
            self._plot,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        return bool(state.sensitivities())

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        tried = state.sensitivities(upto)
        layers = layer_count(state, state.cells())
        self._plot.show(tried, layers)
        self._caption.say(("p", _sensitivity_words(state, tried, layers)))
        if not live:
            self._table.show(sensitivity_table(tried))

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        return (sensitivity_table(state.sensitivities()),)


class MixedSection(Section[QuantizationState]):
    """Bits by layer as the run had them, and what the whole model then weighs and loses."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._figures = FigureRow()
        self._plot = BitsPlot()
        self._caption = Words(css_class="lab-caption")
        self._table = DataTable(summary="Table of bits by layer")
        self.widget = section(
            heading(
                "Mixed precision by hand",
                "More bits where the model suffers, fewer where it does not: write them into ‘Bits by layer’.",
            ),
            self._figures,
            self._plot,
            self._caption,
            self._table,
        )

    @classmethod
    def present(cls, state: QuantizationState) -> bool:
        return state.coverage is not None and bool(state.coverage.layer_bits)

    def render(self, state: QuantizationState, upto: int, *, live: bool) -> None:
        del upto
        coverage = state.coverage
        self._figures.show(_mixed_figures(coverage, whole_model(state)))
        self._plot.show(coverage)
        self._caption.say(("p", suggestion(state)))
        if not live:
            self._table.show(bits_table(coverage))

    def tables(self, state: QuantizationState) -> Sequence[Table]:
        return (bits_table(state.coverage),)


def layer_count(state: QuantizationState, cells: dict[Matrix, MapCell]) -> int:
    """How many layers the model has."""
    told = len(state.started.facts.layers) if state.started else 0
    return max([told, *(m.layer + 1 for m in cells)])


def planned_cells(state: QuantizationState, layers: int) -> list[Matrix]:
    """All places of the map."""
    missing = missing_projections(state.started.facts) if state.started else {}
    return [Matrix(layer, name) for layer in range(layers) for name in PROJECTIONS if name not in missing]


def map_verdict(
    cells: Sequence[MapCell], planned: int, *, live: bool, end: RunFinished | RunCancelled | RunFailed | None
) -> tuple[str, str, str]:
    """Tone, heading and note: where the errors are large."""
    known = [c for c in cells if math.isfinite(c.weight_error) and c.weight_error > 0]
    if not cells:
        return "pending", "No matrix measured yet." if live or end is None else "No matrix was measured.", ""
    part = ""
    if len(cells) < planned:
        finished = isinstance(end, RunFinished) and not live
        part = f"{len(cells):,} of {planned:,} matrices{'; the others stay dense.' if finished else ' so far.'}"
    if not known:
        return "none", "Quantizing changes nothing", f"All {len(cells):,} matrices have no error at all. {part}".strip()
    worst, least = max(known, key=lambda c: c.weight_error), min(known, key=lambda c: c.weight_error)
    by_kind: dict[str, list[float]] = {}
    for cell in known:
        by_kind.setdefault(cell.projection, []).append(cell.weight_error)
    means = {name: sum(errors) / len(errors) for name, errors in by_kind.items()}
    hardest = max(means, key=lambda name: means[name])
    text = f"Weights change most in layer {worst.layer} {worst.projection}: by {typeset_share(worst.weight_error)}"
    note = (
        f"Least in layer {least.layer} {least.projection}: {typeset_share(least.weight_error)}. On average over layers "
        f"{hardest} changes most, by {typeset_share(means[hardest])}. {part}"
    )
    return "pending" if live else "none", text, note.strip()


def _caption(cells: Sequence[MapCell], measure: Measure, *, live: bool) -> str:
    if not cells:
        return "The cells come as they are measured." if live else "Nothing was measured."
    if not any(math.isfinite(value(c, measure)) for c in cells):
        return f"The {MEASURES[measure]} was not measured in this run; choose another."
    words = f"MEASURED. Colour: {UNITS[measure]}. The frame marks the largest."
    return words + " Point at a cell for its figures; an empty one is not measured."


def _sensitivity_words(state: QuantizationState, tried: Sequence[Sensitivity], layers: int) -> str:
    if not tried:
        return "The layers are tried one after another once the map is there."
    total = sum(max(s.divergence.kl, 0.0) for s in tried)
    whole = whole_model(state)
    words = (
        f"MEASURED on {tried[0].divergence.positions:,} positions of held-out text, {len(tried)} of {layers} layers."
    )
    if len(tried) < layers and isinstance(state.end, RunFinished):
        words += " A layer without a bar stays dense."
    if whole is not None and len(tried) == layers and not state.param("layer_bits", ""):
        together = whole.divergence.kl
        how = "add up" if _near(total, together) else "do not simply add up"
        words += (
            f" All layers together: {format_number(together)} nats; the sum of the bars is {format_number(total)}: "
            f"errors of layers {how}."
        )
    return words


def _near(first: float, second: float) -> bool:
    return abs(first - second) <= 0.15 * max(first, second)


def whole_model(state: QuantizationState) -> ModelErrors | None:
    """The newest comparison of the model with all layers quantized."""
    return next((m for m in reversed(state.model_errors) if m.whole), None)


def _mixed_figures(coverage: Coverage | None, whole: ModelErrors | None) -> list[dict[str, Any]]:
    size, unit = split_bytes(coverage.model_bytes if coverage else None)
    return [
        {
            "id": "mixed_size",
            "value": size,
            "unit": f"{unit} for the whole model",
            "badge": "DERIVED",
            "note": f"dense: {format_bytes(coverage.dense_bytes)}" if coverage else "",
            "title": "What a file would hold, embeddings and all that stays dense included. No memory is saved here.",
        },
        {
            "id": "mixed_bits",
            "value": f"{coverage.bits_per_weight:.2f}" if coverage else "",
            "unit": "bits per quantized weight",
            "badge": "DERIVED",
            "note": f"{coverage.model_bits:.2f} over all parameters" if coverage else "",
            "title": "Codes, scales and zero points of the quantized matrices divided by their weights.",
        },
        {
            "id": "mixed_kl",
            "value": format_number(whole.divergence.kl) if whole else "",
            "unit": "nats, KL(dense ‖ quantized)",
            "badge": "MEASURED",
            "note": f"flips: {whole.divergence.flips:,} of {whole.divergence.positions:,}" if whole else "",
            "title": "Mean over positions of held-out text.",
        },
    ]


def suggestion(state: QuantizationState) -> str:
    """What to write into the field next, from the layers tried alone."""
    tried = sorted(state.sensitivities(), key=lambda s: -s.divergence.kl)
    # A run that stopped has not tried all layers: the least sensitive may be among the others.
    if len(tried) < 5 or state.param("layer_bits", "") or not isinstance(state.end, RunFinished):
        return "‘Bits by layer’ takes layers and their bits, as in 0:8, 10-19:3, 29:16; 16 stays dense."
    worst, least = [s.layer for s in tried[:2]], [s.layer for s in tried[-3:]]
    bits = int(state.param("bits", 4))
    more, fewer = min(8, bits + 2), max(2, bits - 1)
    parts = [f"{layer}:{more}" for layer in sorted(worst)] + [f"{layer}:{fewer}" for layer in sorted(least)]
    return (
        f"The two most sensitive layers with {more} bits and the three least sensitive with {fewer}: write "
        f"{', '.join(parts)} into ‘Bits by layer’ and run again. 16 stays dense."
    )


def _number(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def map_table(cells: dict[Matrix, MapCell]) -> Table:
    """All cells, as they came."""
    head = [
        "layer",
        "projection",
        "bits of a code",
        "weight error, |W′ − W| / |W|",
        "output error, |X(W′ − W)ᵀ| / |XWᵀ|",
        "max |W′ − W|",
        "bits per weight",
        "weights",
    ]
    rows = [
        [
            c.layer,
            c.projection,
            c.bits,
            _number(c.weight_error),
            _number(c.output_error),
            _number(c.max_error),
            _number(c.bits_per_weight),
            c.weights,
        ]
        for c in sorted(cells.values(), key=lambda c: c.layer)
    ]
    return Table("map", head, rows)


def sensitivity_table(tried: Sequence[Sensitivity]) -> Table:
    """One row a layer."""
    head = [
        "layer",
        "KL(dense ‖ quantized), nats",
        "worst KL, nats",
        "flips",
        "positions",
        "perplexity",
        "dense perplexity",
        "bits per weight",
    ]
    rows = [
        [
            s.layer,
            _number(s.divergence.kl),
            _number(s.divergence.worst_kl),
            s.divergence.flips,
            s.divergence.positions,
            s.divergence.perplexity,
            s.divergence.dense_perplexity,
            _number(s.bits_per_weight),
        ]
        for s in sorted(tried, key=lambda s: s.layer)
    ]
    return Table("sensitivity", head, rows)


def bits_table(coverage: Coverage | None) -> Table:
    """Bits and bytes of each layer."""
    bits = coverage.layer_bits if coverage else ()
    sizes = coverage.layer_bytes if coverage else ()
    rows = [[i, b or "dense", sizes[i] if i < len(sizes) else None] for i, b in enumerate(bits)]
    return Table("bits_by_layer", ["layer", "bits of a code", "size, bytes"], rows)
