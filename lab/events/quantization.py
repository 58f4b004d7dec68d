"""Events of the `quantization` experiment: errors of weights, of outputs and of the whole model.

W is a weight matrix (out, in), W' what it counts as after quantization, X the inputs of its layer (positions, in). An
error is W' - W. What one method shows of itself is in `quantization_methods`, words and speed in `quantization_words`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.events.array import ArrayData
from lab.events.base import Event
from lab.events.evaluation import Divergence


@dataclass(frozen=True)
class Setting:
    """One way to quantize a matrix or a model.

    Attributes:
        method: as in the parameters: "nearest", "gptq", "awq", "nf4", "llm_int8", or a number format ("fp8_e4m3").
        label: for a person, all that matters in it: "GPTQ, 4 bits, groups of 64".
        bits: of a code; of a number for a format.
        kind: where the levels lie ("absmax", "full_range", "asymmetric", "float_minimum"); "" where the method has
            levels of its own.
        share: weights that share a scale: "64", "128+rest" (the last group of a row may be smaller), "row" or "tensor";
            "" where the method says itself.
    """

    method: str
    label: str
    bits: int
    kind: str
    share: str


@dataclass(frozen=True, kw_only=True)
class GridNote(Event):
    """Whether the model's own weights lie on a quantization grid: then quantizing on that grid changes nothing.

    Attributes:
        grid: as the model's facts name it ("Q4_1, groups of 32"); "" if none is known.
        checked: the matrix that was put on 4 bits, groups of 32, float minimum.
        changed: share of its weights that changed, 0..1; 0 means that it lies on that grid.
        max_error: the largest change of a weight.
        words: what a reader of a 4-bit picture must know; "" if there is nothing.
    """

    grid: str
    checked: str
    changed: float
    max_error: float
    words: str


@dataclass(frozen=True, kw_only=True)
class ErrorHistogram(Event):
    """Errors of one matrix at one setting. Histograms of one matrix in one run have the same axis.

    Attributes:
        layer: 0 is the first. projection: "q_proj", ... module: its full name. rows, columns: out, in.
        low, high: ends of the axis; bins are of equal width between them.
        counts: int64 (bin,). below, above: errors beyond the ends of the axis.
        max_error: the largest |W' - W|. mean_square: of W' - W. exact: share of weights with no
            error at all, 0..1; NaN if not counted.
        half_step: the largest s / 2 of all groups: the bound on |W' - W| where nothing is clipped; NaN where levels
            are not evenly spaced, and for GPTQ and AWQ: they round weights moved by earlier errors or multiplied by
            scales, so that s / 2 does not bound the distance from W.
        clipped: weights beyond the lowest or highest level of their group by more than s / 2; None if not counted,
            as for GPTQ and AWQ.
        snr_db: 10 log10(sum W^2 / sum (W' - W)^2), infinite at no error.
        bits_per_weight: with scales, zero points and all else.
        groups: how many scales.
        ms: of quantizing and counting, together.
        chosen: it is the setting that the run was asked for; the others are there to compare.
        notes: what must be known of it: a fallback taken, damping used, a smaller last group.
    """

    layer: int
    projection: str
    module: str
    rows: int
    columns: int
    setting: Setting
    low: float
    high: float
    counts: ArrayData
    below: int
    above: int
    max_error: float
    mean_square: float
    exact: float
    half_step: float
    clipped: int | None
    snr_db: float
    bits_per_weight: float
    groups: int
    ms: float
    chosen: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorstWeight:
    """A weight with one of the largest errors; `group` counts along its row. See the inspection "group"."""

    row: int
    column: int
    group: int
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class WorstWeights(Event):
    """The weights of one matrix with the largest errors, largest first."""

    layer: int
    projection: str
    setting: Setting
    weights: tuple[WorstWeight, ...]


@dataclass(frozen=True, kw_only=True)
class LayerErrors(Event):
    """Errors of one matrix at one setting, each relative to what it is an error of.

    Attributes:
        weight_error: |W' - W| / |W|, Frobenius norms.
        calibration_error, heldout_error: |X (W' - W)^T| / |X W^T| over the inputs that the calibration text sends
            into the layer, and over those of the held-out text; None where not measured. Of LLM.int8() those of its
            own product, inputs rounded and outlier features apart.
        to_nearest: this calibration_error / that of rounding to nearest on the same grid; None for the latter itself
            or where the method has no such grid.
        ms: own compute of the method on this matrix.
        notes: see `ErrorHistogram`.
    """

    layer: int
    projection: str
    setting: Setting
    weight_error: float
    calibration_error: float | None
    heldout_error: float | None
    to_nearest: float | None
    bits_per_weight: float
    ms: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelErrors(Event):
    """The model at one setting beside the dense one, on held-out text.

    Attributes:
        scope: what was quantized: "layer 0 q_proj alone", "all layers", ...
        whole: it is all layers.
        mean_weight_error, mean_output_error: means over the quantized matrices of `LayerErrors.weight_error` and
            `.heldout_error`; None where not measured.
        bits_per_weight: of the quantized weights, all overhead counted.
        activations, cache: how these were quantized; "" if not.
    """

    setting: Setting
    scope: str
    whole: bool
    divergence: Divergence
    mean_weight_error: float | None
    mean_output_error: float | None
    bits_per_weight: float
    activations: str = ""
    cache: str = ""


@dataclass(frozen=True, kw_only=True)
class RankingNote(Event):
    """Two settings that the three errors rank differently.

    Attributes:
        first, second: labels of the two settings.
        better_first: measures by which the first is better ("weight error"); better_second: by which the second is.
        words: the same in a sentence, with the figures.
    """

    first: str
    second: str
    better_first: tuple[str, ...]
    better_second: tuple[str, ...]
    words: str


@dataclass(frozen=True)
class MapCell:
    """One matrix of the map. Errors as in `LayerErrors`; `output_error` on held-out inputs, NaN if not measured."""

    layer: int
    projection: str
    bits: int
    weight_error: float
    output_error: float
    max_error: float
    bits_per_weight: float
    weights: int


@dataclass(frozen=True, kw_only=True)
class MapCells(Event):
    """Some cells of the map of the model; they come as they are measured."""

    setting: Setting
    cells: tuple[MapCell, ...]


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Event):
    """The model with a single layer quantized, all its matrices: how much the whole suffers from that layer.

    Attributes:
        index, total: the how-manyth of how many layers this is.
    """

    layer: int
    setting: Setting
    divergence: Divergence
    bits_per_weight: float
    index: int
    total: int


@dataclass(frozen=True, kw_only=True)
class ParetoPoint(Event):
    """One setting of the whole model: what it costs and what it loses.

    Attributes:
        index, total: the how-manyth of how many settings.
        bits_per_weight: of the quantized weights, all overhead counted.
        model_bytes: of the whole model as packed bits, what stays dense included; files store codes of 5 to 7 bits in
            8, and of 2 and 3 in 4.
        divergence: None where the setting was skipped.
        skipped: why; "" if it was measured.
        chosen: it is the setting of the run's own parameters.
        ms: of quantizing the model.
    """

    index: int
    total: int
    setting: Setting
    bits_per_weight: float
    model_bytes: int
    divergence: Divergence | None
    skipped: str
    chosen: bool
    ms: float


@dataclass(frozen=True)
class CoverageRow:
    """Matrices of one kind and what became of them.

    Attributes:
        name: "q_proj", "embedding", "norms".
        modules: how many. parameters: of all of them, tied ones once.
        quantized: whether they were. reason: why not; "" if they were.
        bytes: as they now count, overhead included.
    """

    name: str
    modules: int
    parameters: int
    quantized: bool
    reason: str
    bytes: int


Truth = Literal["simulated", "packed"]


@dataclass(frozen=True, kw_only=True)
class Coverage(Event):
    """How much of the model is really quantized.

    Attributes:
        truth: "simulated": dequantized weights run, no memory is saved; "packed": codes are what memory holds.
        quantized_parameters, parameters: tied ones once.
        rows: quantized ones first.
        bits_per_weight: of the quantized parameters; model_bits: of all parameters.
        model_bytes, dense_bytes: of the whole model as packed bits (files store codes of 4 or 8 bits only), and of the
            dense one in the run's dtype.
        layer_bits: for each layer the mean bits of a code, where weights of it were quantized; 0 for a dense layer.
        layer_bytes: for each layer, of its quantized matrices.
    """

    setting: Setting
    truth: Truth
    quantized_parameters: int
    parameters: int
    rows: tuple[CoverageRow, ...]
    bits_per_weight: float
    model_bits: float
    model_bytes: int
    dense_bytes: int
    layer_bits: tuple[float, ...]
    layer_bytes: tuple[int, ...]
