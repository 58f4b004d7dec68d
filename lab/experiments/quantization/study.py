"""One matrix quantized one way, and what there is to say of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.events import ArrayData
from lab.events.quantization import ErrorHistogram, LayerErrors, WorstWeight, WorstWeights
from lab.experiments.compared.progress import Made, progress
from lab.experiments.compared.targets import Target, relative
from lab.experiments.quantization.checked import Checked, Sample
from lab.experiments.quantization.choices import BreakRun, divides
from lab.experiments.quantization.mistakes import broken
from lab.experiments.quantization.reference import as_float32, in_format
from lab.experiments.quantization.settings import Scheme
from lab.quantization.affine import AffineWeight, decode_groups, grouped
from lab.quantization.formats import CastWeight
from lab.quantization.grid import SCALE_BITS
from lab.quantization.llm_int8 import Int8Matrix
from lab.quantization.method import Method
from lab.quantization.nf4 import Nf4Weight
from lab.quantization.quantized import Quantized
from lab.quantization.rounding_errors import BINS, power_above
from lab.quantization.sweep import Swept

WORST = 12
MOST_SHARES = 6
_PREFERRED = ("row", "64", "32", "16", "128", "256", "512", "192", "288", "96", "384")


@dataclass
class Studied:
    """A matrix as one scheme has it.

    Attributes:
        made: codes and scales. runs: the weights that count, (out, in) fp32, a deliberate mistake in them.
        ms: of the method's own slices.
    """

    target: Target
    scheme: Scheme
    made: Quantized
    runs: Tensor
    ms: float

    @property
    def weight(self) -> Tensor:
        """The dense matrix, fp32."""
        return self.target.weight.float()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""
        return self.made.notes


def studying(
    target: Target, scheme: Scheme, method: Method, inputs: LayerInputs | None, mistake: BreakRun, stage: str
) -> Made[Studied]:
    """Quantize one matrix, pausing as the method does."""
    took, weight = 0.0, target.weight
    quantizing = method.quantize(weight, inputs)
    while True:
        began = perf_counter()
        try:
            share = next(quantizing)
        except StopIteration as end:
            made: Quantized = end.value
            took += perf_counter() - began
            break
        took += perf_counter() - began
        yield progress(stage, share, 1) if stage else None
    began = perf_counter()
    if mistake != "nothing" and isinstance(made, AffineWeight):
        made, runs = broken(made, weight, mistake)
    else:
        runs = made.dequantize()
    return Studied(target, scheme, made, runs, (took + perf_counter() - began) * 1e3)


def samples_of(checked: Checked, studied: Studied) -> list[Sample]:
    """Groups or numbers of the matrix that the proof computes again; settled against what runs."""
    made, scheme, title = studied.made, studied.scheme, studied.target.title
    weight = studied.target.weight
    if isinstance(made, AffineWeight):
        nearest = scheme.method in ("nearest", "llm_int8")
        whole = nearest and scheme.params.clip == "none"
        return checked.grid_samples(title, weight, made, nearest=nearest, whole_range=whole)
    if isinstance(made, Nf4Weight):
        return checked.nf4_samples(title, weight, made)
    if isinstance(made, CastWeight):
        return checked.number_samples(title, weight, _cast(made))
    return []


def _cast(made: CastWeight) -> Callable[[int, float], float]:
    columns = made.codes.shape[1]
    scales = [1.0] if made.scale is None else made.scale.double().reshape(-1).tolist()

    def expected(place: int, value: float) -> float:
        scale = scales[0] if len(scales) == 1 else scales[place // columns]
        ratio = as_float32(value / scale)
        if made.form == "int8":
            return max(-127, min(127, round(ratio))) * scale
        return in_format(ratio, made.form) * scale

    return expected


def shares_to_compare(target: Target, chosen: str) -> list[str]:
    """Up to six group sizes that fit a matrix, the chosen one among them, the coarsest first."""
    columns = target.weight.shape[1]
    twin = {str(columns): "row", "row": str(columns)}.get(chosen, str(columns))  # the same groups by another name
    fit = [s for s in dict.fromkeys((chosen, *_PREFERRED)) if divides(s, columns) and s != twin]
    return sorted(fit[:MOST_SHARES], key=lambda share: -weights_of(share, columns))


def weights_of(share: str, columns: int) -> int:
    """Weights that share a scale, to sort by."""
    if share in ("row", "tensor"):
        return columns if share == "row" else 1 << 60
    return int(share.partition("+")[0])


def histogram(studied: Studied, limit: float | None, *, chosen: bool) -> ErrorHistogram:
    """The errors counted.

    Args:
        limit: the axis reaches from -limit to it; None takes the power of two above the largest error.
    """
    began = perf_counter()
    target, made, weight = studied.target, studied.made, studied.weight
    change = studied.runs - weight
    low, high = (float(v) for v in change.aminmax())
    largest = max(abs(low), abs(high))
    square = float(change.square().sum(dtype=torch.float64))
    signal = float(weight.square().sum(dtype=torch.float64))
    end = limit or power_above(largest)
    counts = torch.histc(change, bins=BINS, min=-end, max=end).to(torch.int64)
    below, above = int((change < -end).sum()), int((change > end).sum())
    half, clipped, groups = _steps(studied)
    return ErrorHistogram(
        layer=target.layer,
        projection=target.projection,
        module=target.name,
        rows=weight.shape[0],
        columns=weight.shape[1],
        setting=studied.scheme.setting,
        low=-end,
        high=end,
        counts=ArrayData.of(counts.cpu().numpy(), "int64"),
        below=below,
        above=above,
        max_error=largest,
        mean_square=square / change.numel(),
        exact=float((change == 0).sum()) / change.numel(),
        half_step=half,
        clipped=clipped,
        snr_db=10 * math.log10(signal / square) if square and signal else math.inf,
        bits_per_weight=made.storage.bits_per_weight,
        groups=groups,
        ms=studied.ms + (perf_counter() - began) * 1e3,
        chosen=chosen,
        notes=studied.notes,
    )


def swept_event(target: Target, scheme: Scheme, found: Swept) -> ErrorHistogram:
    """The same for round to nearest, as the sweep counted it: nothing is clipped but by the kind itself."""
    rows, columns = target.weight.shape
    counted = int(found.counts.sum())
    groups = 1 if scheme.share == "tensor" else rows * scheme.grid.groups(columns)
    code_bits = scheme.bits * found.weights
    scale_bits = (SCALE_BITS[scheme.grid.scale_format] + scheme.grid.zero_bits) * groups
    return ErrorHistogram(
        layer=target.layer,
        projection=target.projection,
        module=target.name,
        rows=rows,
        columns=columns,
        setting=scheme.setting,
        low=-found.limit,
        high=found.limit,
        counts=ArrayData.of(found.counts.flip(0).cpu().numpy(), "int64"),  # it counts w - w'
        below=0,
        above=found.weights - counted,
        max_error=found.max_error,
        mean_square=found.mean_square,
        exact=math.nan,
        half_step=found.bound,
        clipped=None,
        snr_db=found.signal_to_noise_db,
        bits_per_weight=(code_bits + scale_bits) / found.weights,
        groups=groups,
        ms=0.0,
    )


def _steps(studied: Studied) -> tuple[float, int | None, int]:
    """The largest s / 2, weights clipped, groups; NaN and None where s / 2 bounds nothing, 0 off affine grids."""
    made = studied.made
    if not isinstance(made, AffineWeight):
        return math.nan, None, 0
    groups = made.affine.scale.numel()
    half = float(made.affine.scale.max()) / 2
    if studied.scheme.method in ("gptq", "awq") or made.order is not None or made.channel_scales is not None:
        return math.nan, None, groups  # what was rounded is not W itself: moved by earlier errors, or scaled
    weights = grouped(studied.weight, made.grid)
    room = made.affine.scale[..., None] / 2 * (1 + 1e-5)
    ends = [
        decode_groups(torch.full_like(weights[..., :1], code), made.affine, made.grid)
        for code in (made.grid.lowest, made.grid.highest)
    ]
    padding = weights.numel() - studied.weight.numel()
    beyond = (weights < ends[0] - room) | (weights > ends[1] + room)
    if padding:
        beyond[:, -1, -(-studied.weight.shape[1] % weights.shape[-1]) % weights.shape[-1] :] = False
    return half, int(beyond.sum()), groups


def worst_weights(studied: Studied) -> WorstWeights:
    """The largest errors."""
    weight, columns = studied.weight, studied.weight.shape[1]
    change = (studied.runs - weight).abs().reshape(-1)
    top = torch.topk(change, min(WORST, change.numel())).indices.tolist()
    made = studied.made
    size = made.grid.group_size(columns) if isinstance(made, AffineWeight) else 64
    order = made.order if isinstance(made, AffineWeight) else None
    found = []
    for place in top:
        row, column = divmod(place, columns)
        group = column // size if order is None else int(order[column])
        found.append(WorstWeight(row, column, group, float(weight[row, column]), float(studied.runs[row, column])))
    target = studied.target
    return WorstWeights(
        layer=target.layer, projection=target.projection, setting=studied.scheme.setting, weights=tuple(found)
    )


def layer_errors(
    studied: Studied, calibration: LayerInputs | None, held_out: LayerInputs | None, nearest: float | None
) -> LayerErrors:
    """The errors of weights and outputs.

    Args:
        nearest: the calibration error of round to nearest on the same grid.
    """
    target, weight = studied.target, studied.weight
    change = studied.runs - weight
    on_calibration = None if calibration is None else output_error(studied.scheme, change, weight, calibration)
    return LayerErrors(
        layer=target.layer,
        projection=target.projection,
        setting=studied.scheme.setting,
        weight_error=relative(change, weight),
        calibration_error=on_calibration,
        heldout_error=None if held_out is None else output_error(studied.scheme, change, weight, held_out),
        to_nearest=on_calibration / nearest if on_calibration is not None and nearest else None,
        bits_per_weight=studied.made.storage.bits_per_weight,
        ms=studied.ms,
        notes=studied.notes,
    )


def output_error(scheme: Scheme, change: Tensor, weight: Tensor, inputs: LayerInputs) -> float:
    """The relative error of a matrix's outputs as the scheme computes them.

    LLM.int8() rounds its inputs too and takes outlier features apart: its own product is judged, on the kept inputs.
    """
    if scheme.method == "llm_int8":
        rows = inputs.rows.float()
        exact = rows @ weight.t()
        return relative(Int8Matrix.of(weight).multiply(rows, scheme.params.threshold).output - exact, exact)
    return error_of_outputs(change, weight, inputs)


def error_of_outputs(change: Tensor, weight: Tensor, inputs: LayerInputs) -> float:
    """|X change^T| / |X W^T|: over all positions by their Hessian where it is there, else over the kept ones."""
    if inputs.hessian is None:
        rows = inputs.rows.float()
        return relative(rows @ change.t(), rows @ weight.t())
    sums = [float(((m @ inputs.hessian) * m).sum(dtype=torch.float64)) for m in (change, weight)]
    return math.sqrt(max(sums[0], 0.0) / sums[1]) if sums[1] > 0 else math.inf
