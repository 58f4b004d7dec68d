"""LLM.int8(): a matrix product in 8-bit integers, but for the few large input features (Dettmers et al., 2022).

Features (columns of X) with any |x| at or above a threshold go apart, found anew at each call:

    Y = X_O W_O^T  +  s_x s_w (X_q W_q^T)

X_O and W_O are the outlier columns in floating point. What is left, outlier columns zeroed, is quantized by vectors:
s_x = max|row of X| / 127 for each position, s_w = max|row of W| / 127 for each output; the integer product is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.models.linear import check_weight
from lab.quantization.grid import SMALLEST_NORMAL, Grid
from lab.quantization.int8_product import int8_product
from lab.quantization.method import Quantizing
from lab.quantization.nearest import Nearest

LARGEST = 127
THRESHOLD = 6.0
"""The paper's."""


@dataclass(frozen=True)
class LlmInt8:
    """What LLM.int8() stores of a weight matrix, as a `Method`: 8 bits, one fp32 scale a row.

    What happens to the inputs is decided at each call, see `Int8Matrix` and `lab.quantization.llm_int8_module`.
    """

    name: ClassVar[str] = "llm_int8"
    label: ClassVar[str] = "LLM.int8()"
    wants_inputs: ClassVar[bool] = False
    wants_hessian: ClassVar[bool] = False

    def quantize(self, weight: Tensor, inputs: LayerInputs | None = None) -> Quantizing:
        """See `Method`."""
        return (yield from Nearest(Grid(8, "absmax", "row", scale_format="float32")).quantize(weight, inputs))


def vector_wise(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize each row by its own largest magnitude.

    Args:
        rows: (rows, in), any floating dtype.

    Returns:
        (rows, in) int8 codes, -127 to 127, and (rows,) fp32 scales; 0 for a row without a normal number, whose codes
        are 0. A row with NaN keeps it in its scale.
    """
    rows = rows.float()
    scales = rows.abs().amax(dim=1) / LARGEST
    scales = torch.where(scales < SMALLEST_NORMAL, 0.0, scales)
    step = torch.where(scales == 0, torch.inf, scales)[:, None]
    return (rows / step).round_().clamp_(-LARGEST, LARGEST).to(torch.int8), scales


def check_threshold(threshold: float) -> None:
    """Refuse what is no threshold.

    Raises:
        BadInput: NaN or a negative number.
    """
    if math.isnan(threshold) or threshold < 0:
        raise BadInput(
            f"A threshold for outlier features is 0 (none is taken apart) or more, not {shown(threshold)}.",
            remedy="The paper takes 6.",
        )


def outlier_features(x: Tensor, threshold: float) -> Tensor:
    """(count,) int64, ascending: the columns of this call's (rows, in) inputs with any |x| >= threshold.

    With threshold 0 there are none: all goes to integers.

    Raises:
        BadInput: NaN or a negative threshold.
    """
    check_threshold(threshold)
    if threshold == 0:
        return torch.zeros(0, dtype=torch.int64, device=x.device)
    return (x.abs() >= threshold).any(dim=0).nonzero()[:, 0]


@dataclass(frozen=True)
class MixedProduct:
    """Both parts of a product.

    Attributes:
        integer: (rows, out) fp32: what the integers gave, scaled back.
        floating: (rows, out) fp32: what the outlier features gave.
        outliers: (count,) int64: the columns taken apart.
        x_scales: (rows,) fp32: scales of the inputs, outliers left out; 0 for a row without other inputs.
    """

    integer: Tensor
    floating: Tensor
    outliers: Tensor
    x_scales: Tensor

    @property
    def output(self) -> Tensor:
        """(rows, out) fp32."""
        return self.integer + self.floating


@dataclass(frozen=True)
class Int8Matrix:
    """A weight matrix as LLM.int8() uses it.

    Attributes:
        codes: (out, in) int8.
        scales: (out,) fp32.
        dense: (out, in), the weights themselves for the outlier columns (the paper's way); None: these columns are
            taken from the codes (bitsandbytes' way, where only codes are held).
    """

    codes: Tensor
    scales: Tensor
    dense: Tensor | None = None

    @classmethod
    def of(cls, weight: Tensor, *, keep_dense: bool = True, name: str = "The matrix") -> Int8Matrix:
        """Quantize (out, in) weights.

        Raises:
            BadInput: a weight that is not finite.
        """
        check_weight(weight, name)
        codes, scales = vector_wise(weight.detach())
        return cls(codes, scales, weight.detach() if keep_dense else None)

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.codes.shape[0], self.codes.shape[1]

    def columns(self, which: Tensor) -> Tensor:
        """(out, count) fp32: some columns, as the floating point part takes them."""
        if self.dense is not None:
            return self.dense.index_select(1, which).float()
        return self.codes.index_select(1, which).float() * self.scales[:, None]

    def multiply(self, x: Tensor, threshold: float = THRESHOLD) -> MixedProduct:
        """X W^T of (rows, in) inputs, any floating dtype. The floating point part is computed in fp32.

        Whole outlier columns are zeroed before rows are scaled. (bitsandbytes zeroes only the large numbers in them
        first, so its scales may be larger.)

        Raises:
            BadInput: NaN or a negative threshold.
        """
        x = x.float()
        outliers = outlier_features(x, threshold)
        floating = x.new_zeros(x.shape[0], self.shape[0])
        if outliers.numel():
            floating = x.index_select(1, outliers) @ self.columns(outliers).t()
            x = x.index_fill(1, outliers, 0.0)
        codes, x_scales = vector_wise(x)
        integer = int8_product(codes, self.codes).float().mul_(x_scales[:, None]).mul_(self.scales)
        return MixedProduct(integer, floating, outliers, x_scales)


def plant(x: Tensor, features: int, factor: float = 100.0) -> tuple[Tensor, Tensor]:
    """Make some features of (rows, in) inputs larger, as grown models have them: evenly spaced columns.

    Returns:
        The new inputs, and the (features,) int64 columns.

    Raises:
        BadInput: more features than columns, or none.
    """
    if not 1 <= features <= x.shape[1]:
        raise BadInput(f"{features} of {x.shape[1]} features cannot be made larger.", remedy="Choose a few.")
    chosen = (torch.arange(features, device=x.device) * x.shape[1]) // features
    planted = x.clone()
    planted[:, chosen] *= factor
    return planted, chosen


@dataclass(frozen=True)
class OutlierStudy:
    """LLM.int8() on some inputs of one matrix, for drawing.

    Attributes:
        threshold: of this call.
        positions, channels: of X.
        outliers: (channel, its largest |x|), largest first, at most 64.
        count: all outlier channels.
        maxima: (channel,) fp32: the largest |x| of each.
        pure_error: relative output error |Y - Y'| / |Y| with all in integers.
        mixed_error: with the outlier features apart.
        integer_share: of the inputs that went through integers, 0 to 1.
    """

    threshold: float
    positions: int
    channels: int
    outliers: tuple[tuple[int, float], ...]
    count: int
    maxima: Tensor
    pure_error: float
    mixed_error: float
    integer_share: float


def study_outliers(x: Tensor, weight: Tensor, threshold: float = THRESHOLD) -> OutlierStudy:
    """Outlier features of (rows, in) inputs and what taking them apart is worth on (out, in) weights.

    Raises:
        BadInput: weights that are not finite, NaN or a negative threshold.
    """
    matrix = Int8Matrix.of(weight)
    x = x.float()
    exact = x @ weight.detach().float().t()
    mixed, pure = matrix.multiply(x, threshold), matrix.multiply(x, 0.0)
    maxima = x.abs().amax(dim=0)
    largest = mixed.outliers[maxima[mixed.outliers].argsort(descending=True)][:64].tolist()
    values = maxima.tolist()
    return OutlierStudy(
        threshold=threshold,
        positions=x.shape[0],
        channels=x.shape[1],
        outliers=tuple((channel, values[channel]) for channel in largest),
        count=mixed.outliers.numel(),
        maxima=maxima,
        pure_error=relative_error(pure.output, exact),
        mixed_error=relative_error(mixed.output, exact),
        integer_share=1.0 - mixed.outliers.numel() / x.shape[1],
    )


def relative_error(found: Tensor, exact: Tensor) -> float:
    """|found - exact| / |exact| over all elements (Frobenius); 0 where both are 0, infinite where only `exact` is."""
    error, size = float((found.double() - exact.double()).norm()), float(exact.double().norm())
    if size == 0:
        return 0.0 if error == 0 else math.inf
    return error / size
