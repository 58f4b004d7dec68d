"""What a method shows of itself on one matrix, and number formats and activations beside it."""

from __future__ import annotations

import math

import torch

from lab.calibration.inputs import LayerInputs
from lab.events import ArrayData
from lab.events.quantization_methods import (
    ActivationChoice,
    ActivationRanges,
    Feature,
    FormatsTable,
    GptqReplay,
    LevelsShown,
    NumberFormat,
    OutlierFeatures,
    Protected,
    ScaleSearch,
)
from lab.experiments.compared.progress import Part, shares
from lab.experiments.compared.targets import relative
from lab.experiments.quantization.build import SCALINGS, build
from lab.experiments.quantization.setup import Setup
from lab.experiments.quantization.study import Studied
from lab.models.linear import decoder_layers
from lab.quantization.activation_study import PERCENTS, RangeGatherer, study_activations
from lab.quantization.affine import AffineWeight, grouped
from lab.quantization.awq import AwqWeight, channel_scales
from lab.quantization.awq_search import ScaleSearch as Search
from lab.quantization.awq_search import blocks_of
from lab.quantization.formats import FORMATS, Cast
from lab.quantization.gptq import Gptq, GptqWeight
from lab.quantization.gptq_replay import replaying
from lab.quantization.llm_int8 import plant, study_outliers
from lab.quantization.nf4_levels import levels
from lab.steps import finished, relay

PLANTED_FEATURES, PLANTED_FACTOR = 3, 100.0
_BINS = 128
_MOST_PROTECTED = 16
_REPLAYED_ROWS, _REPLAYED_COLUMNS = 12, 96
_MOST_MAXIMA, _MOST_POSITIONS = 1024, 256
_CHOICES = {
    "token": "dynamic, per token",
    "tensor": "dynamic, per tensor",
    "static_max": "static: maximum",
    "static_percentile": "static: percentile",
    "static_moving_average": "static: moving average",
}


def extras(setup: Setup, studied: Studied, calibration: LayerInputs, held_out: LayerInputs) -> Part:
    """Events of the chosen method; none where it has nothing of its own to show."""
    scheme = studied.scheme
    yield levels_shown(studied)
    if isinstance(studied.made, GptqWeight) and not studied.made.fell_back:
        yield from gptq_replay(studied, calibration)
    if isinstance(studied.made, AwqWeight):
        yield matrix_search(setup, studied, calibration)
    if scheme.method == "llm_int8":
        yield from outliers(studied, held_out, setup.params.threshold)
    if setup.params.activations != "none":
        yield activation_ranges(studied, calibration, held_out, setup.params.activation_bits)
    yield from formats_table(studied)


def levels_shown(studied: Studied) -> LevelsShown | None:
    """Levels against weights, for NF4 and for symmetric grids."""
    target, made = studied.target, studied.made
    if studied.scheme.method == "nf4":
        found = levels(target.weight, bins=_BINS)
        return LevelsShown(
            layer=target.layer,
            projection=target.projection,
            label="NF4",
            levels=found.levels,
            low=found.edges[0],
            high=found.edges[-1],
            counts=ArrayData.of(found.counts, "int64"),
            used=found.used,
            even=found.even,
        )
    if not isinstance(made, AffineWeight) or made.affine.offset is not None or made.channel_scales is not None:
        return None
    grid = made.grid
    weights = grouped(target.weight, grid)
    largest = weights.abs().amax(dim=-1, keepdim=True)
    scaled = weights / largest.clamp_(min=torch.finfo(torch.float32).tiny)
    codes = (made.codes.reshape(-1).int() - grid.lowest).bincount(minlength=grid.highest - grid.lowest + 1)
    half = grid.highest if grid.kind == "absmax" else (grid.highest - grid.lowest) / 2
    return LevelsShown(
        layer=target.layer,
        projection=target.projection,
        label=studied.scheme.setting.label,
        levels=tuple(q / half for q in range(grid.lowest, grid.highest + 1)),
        low=-1.0,
        high=1.0,
        counts=ArrayData.of(torch.histc(scaled, _BINS, -1.0, 1.0).to(torch.int64).cpu().numpy(), "int64"),
        used=tuple(codes.tolist()),
    )


def outliers(studied: Studied, held_out: LayerInputs, threshold: float) -> Part:
    """LLM.int8() on the layer's own inputs, and with some channels made larger."""
    yield outlier_features(studied, held_out.rows, threshold, 0.0)
    factor = planted_factor(held_out.rows, threshold)
    planted, _ = plant(held_out.rows, PLANTED_FEATURES, factor)
    yield outlier_features(studied, planted, threshold, factor)


def planted_factor(rows: torch.Tensor, threshold: float) -> float:
    """How many times larger channels are made: `PLANTED_FACTOR`, or what lifts each to twice the threshold."""
    _, chosen = plant(rows, PLANTED_FEATURES, 1.0)
    smallest = float(rows[:, chosen].abs().amax(dim=0).min())
    needed = 2 * threshold / smallest if smallest > 0 else 0.0
    return max(PLANTED_FACTOR, float(math.ceil(needed / 100) * 100))


def outlier_features(studied: Studied, rows: torch.Tensor, threshold: float, planted: float) -> OutlierFeatures:
    """The outlier channels of some inputs, (position, in)."""
    found = study_outliers(rows, studied.target.weight, threshold)
    maxima = found.maxima.sort(descending=True).values[:_MOST_MAXIMA]
    if not threshold:
        larger = f"{PLANTED_FEATURES} channels were made {planted:g} times larger. " if planted else ""
        words = f"{larger}At threshold 0 nothing is taken apart: all goes through integers, whatever the inputs are."
    elif planted:
        words = (
            f"{PLANTED_FEATURES} channels were made {planted:g} times larger, as models of billions of parameters "
            "have them: then taking them apart is what saves the others' precision."
        )
    elif found.count:
        words = (
            f"{found.count} of {found.channels} channels reach {threshold:g} on this text. In models of this size that "
            "is a matter of the layer; systematic outlier features were seen from some 6.7 billion parameters on."
        )
    else:
        words = f"No channel reaches {threshold:g} here: all goes through integers, and there is nothing to take apart."
    return OutlierFeatures(
        layer=studied.target.layer,
        projection=studied.target.projection,
        threshold=threshold,
        positions=found.positions,
        channels=found.channels,
        count=found.count,
        outliers=tuple(Feature(channel, largest) for channel, largest in found.outliers),
        maxima=ArrayData.of(maxima.cpu().numpy(), "float32"),
        pure_error=found.pure_error,
        mixed_error=found.mixed_error,
        planted=planted,
        words=words,
    )


def activation_ranges(studied: Studied, calibration: LayerInputs, held_out: LayerInputs, bits: int) -> ActivationRanges:
    """All ways to quantize the inputs of one matrix, beside its weights alone."""
    target = studied.target
    gatherer = RangeGatherer()
    gatherer.see(calibration.rows)
    ranges = gatherer.result(target.name)
    found = study_activations(calibration.rows, held_out.rows, target.weight, studied.runs, bits=bits)
    return ActivationRanges(
        layer=target.layer,
        projection=target.projection,
        bits=bits,
        low=ranges.low,
        high=ranges.high,
        percentiles=tuple(zip(PERCENTS, ranges.percentiles, strict=True)),
        outliers=tuple(Feature(channel, largest) for channel, largest in ranges.largest),
        token_max=ArrayData.of(found.token_max[:_MOST_POSITIONS].cpu().numpy(), "float32"),
        choices=tuple(
            ActivationChoice(
                mode=_CHOICES.get(c.name, c.name),
                scale=c.scale,
                clipped=c.clipped,
                input_error=c.input_error,
                output_error=c.output_error,
                both_error=c.both_error,
            )
            for c in found.choices
        ),
        weights_only_error=found.weights_only_error,
    )


def formats_table(studied: Studied) -> Part:
    """The matrix in each number format."""
    target, weight = studied.target, studied.weight
    rows = []
    for form in FORMATS.values():
        scaling = SCALINGS.get(form.name, "none")
        made = finished(Cast(form.name, scaling=scaling).quantize(target.weight))
        rows.append(
            NumberFormat(
                name=form.label,
                bits=form.bits,
                largest=form.largest,
                smallest_normal=form.smallest_normal,
                smallest=form.smallest,
                epsilon=2.0**-form.mantissa_bits if form.exponent_bits else 1.0,
                weight_error=relative(made.dequantize() - weight, weight),
                beyond=int((weight.abs() > form.largest).sum()) if scaling == "none" else 0,
                scaled=scaling != "none",
            )
        )
        yield None
    yield FormatsTable(layer=target.layer, projection=target.projection, formats=tuple(rows))


def matrix_search(setup: Setup, studied: Studied, calibration: LayerInputs) -> ScaleSearch:
    """AWQ's search on one matrix by itself, and whether its scales could be folded in a whole model."""
    target, made = studied.target, studied.made
    assert isinstance(made, AwqWeight)  # noqa: S101 - the caller looked
    prefix, layers = decoder_layers(setup.model)
    inside = target.name.removeprefix(f"{prefix}.{target.layer}.")
    block = next((b for b in blocks_of(layers[target.layer]) if inside in b.names), None)
    scales = channel_scales(calibration.mean_abs, made.ratio)
    return ScaleSearch(
        layer=target.layer,
        projections=(target.projection,),
        ratios=made.ratios,
        losses=made.errors,
        judged_by=target.projection,
        best=made.ratio,
        protected=tuple(
            Protected(j, float(calibration.mean_abs[j]), float(scales[j])) for j in made.protected[:_MOST_PROTECTED]
        ),
        channels=target.weight.shape[1],
        folded_into="" if block is None or block.reason else block.before,
        refused="This layer is not built like Llama's, so that nothing is known to fold into."
        if block is None
        else block.reason,
        clipped=made.clipped,
    )


def scale_search(found: Search) -> ScaleSearch:
    """AWQ's search on matrices of a whole model."""
    names = [name.split(".") for name in found.modules]
    scales = found.scales
    layer = next((int(part) for part in names[0] if part.isdigit()), 0)
    return ScaleSearch(
        layer=layer,
        projections=tuple(name[-1] for name in names),
        ratios=found.ratios,
        losses=found.errors,
        judged_by=found.parent.rpartition(".")[2],
        best=found.ratios[found.best] if found.ratios else 0.0,
        protected=tuple(
            Protected(j, float("nan"), float(scales[j]) if scales is not None else 1.0)
            for j in found.protected[:_MOST_PROTECTED]
        ),
        channels=0 if scales is None else scales.numel(),
        folded_into=found.folded_into.rpartition(".")[2],
        refused=found.reason,
    )


def gptq_replay(studied: Studied, calibration: LayerInputs) -> Part:
    """A few rows, spread over the matrix, and the columns that came first."""
    method, target = build(studied.scheme), studied.target
    assert isinstance(method, Gptq)  # noqa: S101 - the caller looked
    height, width = target.weight.shape
    rows = sorted({round(i * (height - 1) / (_REPLAYED_ROWS - 1)) for i in range(_REPLAYED_ROWS)})
    replay = replaying(target.weight, calibration, method, rows, count=min(_REPLAYED_COLUMNS, width))
    found = yield from relay(replay, shares("replaying GPTQ"))

    def array(values: torch.Tensor) -> ArrayData:
        return ArrayData.of(values.cpu().numpy(), "float32")

    yield GptqReplay(
        layer=target.layer,
        projection=target.projection,
        rows=found.rows,
        columns=tuple(int(c) for c in found.columns.tolist()),
        start=found.start,
        width=width,
        original=array(found.original),
        at_turn=array(found.at_turn),
        codes=ArrayData.of(found.codes.cpu().numpy(), "int32"),
        values=array(found.values),
        error=array(found.error),
        spread=array(found.spread),
        passed_on=array(found.passed_on),
        loss=array(found.loss),
        nearest_loss=array(found.rounded_loss),
        final_loss=array(found.final_loss),
        act_order=method.act_order,
        damping=found.damping,
    )
