"""Events of the `quantization` experiment: what one method shows of itself, on one matrix."""

from __future__ import annotations

from dataclasses import dataclass

from lab.events.array import ArrayData
from lab.events.base import Event


@dataclass(frozen=True, kw_only=True)
class LevelsShown(Event):
    """The levels of a code against the weights they stand for, both divided by the largest |w| of their group.

    Attributes:
        label: "NF4", "absmax, 4 bits".
        levels: ascending, within -1..1.
        counts: int64 (bin,): weights between `low` and `high`, in bins of equal width.
        used: for each level the weights that go to it.
        even: the same for as many evenly spaced levels, to compare with; () where they are evenly spaced anyway.
    """

    layer: int
    projection: str
    label: str
    levels: tuple[float, ...]
    low: float
    high: float
    counts: ArrayData
    used: tuple[int, ...]
    even: tuple[int, ...] = ()


@dataclass(frozen=True)
class Protected:
    """An input channel that the search made larger: its mean |x| on calibration text, and its scale."""

    channel: int
    mean_abs: float
    scale: float


@dataclass(frozen=True, kw_only=True)
class ScaleSearch(Event):
    """AWQ's search for one set of matrices that share their inputs.

    Attributes:
        projections: those matrices.
        ratios: r tried, s_j = mean|x_j|^r normed. losses: for each the mean square error of the output over its mean
            square. Both () where nothing was searched. judged_by: whose output: "self_attn", or the matrix's own.
        best: the r taken; at r = 0 it is rounding to nearest.
        protected: channels with the largest scales, largest first; channels: how many there are.
        folded_into: what takes the inverse scale ("input_layernorm"); "" if nothing can.
        refused: why nothing can; "" if something does.
        clipped: smaller ranges of groups made the error less still, and were taken.
    """

    layer: int
    projections: tuple[str, ...]
    ratios: tuple[float, ...]
    losses: tuple[float, ...]
    judged_by: str
    best: float
    protected: tuple[Protected, ...]
    channels: int
    folded_into: str
    refused: str
    clipped: bool = False


@dataclass(frozen=True, kw_only=True)
class GptqReplay(Event):
    """GPTQ column by column on a part of one matrix: some rows, some columns in the order they were taken.

    When column k is rounded, a later column j of row r changes by -error[r, k] * spread[k, j]: every frame can be drawn
    from these arrays. All are float32 but `codes`.

    Attributes:
        rows: row numbers shown. columns: column numbers in the order in which they were rounded, the first shown being
            the `start`-th of all `width`.
        original: (row, column): the weights as they were. at_turn: as they stood when they were rounded; less
            `original`, what they had absorbed.
        codes: int32 (row, column). values: (row, column): what the codes stand for. error: at_turn - values.
        spread: (column, column): the share of column k's error that column j takes; 0 for j <= k.
        passed_on: (row, column): what all later columns changed by, shown or not, in magnitudes.
        loss: (row, column): what each column's error adds to the output's mean square error.
        nearest_loss, final_loss: (row,): that error of the row's output rounded to nearest, and after GPTQ.
        act_order: whether the columns with the largest inputs came first. damping: what was added to the diagonal,
            as a share of its mean.
    """

    layer: int
    projection: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    start: int
    width: int
    original: ArrayData
    at_turn: ArrayData
    codes: ArrayData
    values: ArrayData
    error: ArrayData
    spread: ArrayData
    passed_on: ArrayData
    loss: ArrayData
    nearest_loss: ArrayData
    final_loss: ArrayData
    act_order: bool
    damping: float


@dataclass(frozen=True)
class Feature:
    """An input channel and its largest |x|."""

    channel: int
    max_abs: float


@dataclass(frozen=True, kw_only=True)
class OutlierFeatures(Event):
    """LLM.int8() on the inputs of one matrix: channels that stay in floating point, and what that is worth.

    Attributes:
        threshold: a channel is an outlier where any |x| of this call reaches it; 0: none ever is.
        positions: rows of X in this call. outliers: its outlier channels (largest first, at most 64); count: all.
        channels: how many channels there are.
        maxima: float32 (channel,) the largest |x| of each channel, sorted from the largest (at most 1024).
        pure_error, mixed_error: relative output error with no channel apart, and with the outliers apart.
        planted: factor by which some channels were made larger for a demonstration; 0 for the model's own inputs.
        words: what to make of it, honestly.
    """

    layer: int
    projection: str
    threshold: float
    positions: int
    channels: int
    count: int
    outliers: tuple[Feature, ...]
    maxima: ArrayData
    pure_error: float
    mixed_error: float
    planted: float
    words: str


@dataclass(frozen=True)
class ActivationChoice:
    """One way to quantize the inputs of a matrix.

    Attributes:
        mode: "dynamic per token", "dynamic per tensor", "static, maximum", "static, percentile", ...
        scale: of a static one; NaN where it differs from call to call.
        clipped: share of held-out inputs beyond the range, 0..1.
        input_error: relative error of the inputs. output_error: relative error of the output with dense weights;
        both_error: with quantized weights too, NaN if not measured.
    """

    mode: str
    scale: float
    clipped: float
    input_error: float
    output_error: float
    both_error: float


@dataclass(frozen=True, kw_only=True)
class ActivationRanges(Event):
    """The inputs of one matrix on calibration text and what quantizing them costs.

    Attributes:
        low, high: the smallest and largest input. percentiles: (per cent, the input that so many stay below).
        outliers: channels with the largest |x|, largest first.
        token_max: float32 (position,) largest |x| of each position, at most 256 of them.
        weights_only_error: relative output error of the quantized weights with dense inputs; NaN if not measured.
    """

    layer: int
    projection: str
    bits: int
    low: float
    high: float
    percentiles: tuple[tuple[float, float], ...]
    outliers: tuple[Feature, ...]
    token_max: ArrayData
    choices: tuple[ActivationChoice, ...]
    weights_only_error: float


@dataclass(frozen=True)
class NumberFormat:
    """A number format on a matrix.

    Attributes:
        name: "FP8 e4m3". bits: of a number.
        largest, smallest_normal, smallest: positive numbers it can hold. epsilon: from 1 to the next number.
        weight_error: relative error of the matrix in it. beyond: weights larger than `largest`.
        scaled: whether the matrix was scaled to fit (INT8).
    """

    name: str
    bits: int
    largest: float
    smallest_normal: float
    smallest: float
    epsilon: float
    weight_error: float
    beyond: int
    scaled: bool


@dataclass(frozen=True, kw_only=True)
class FormatsTable(Event):
    """Number formats side by side on one matrix. What a single value becomes: the inspection "formats"."""

    layer: int
    projection: str
    formats: tuple[NumberFormat, ...]
