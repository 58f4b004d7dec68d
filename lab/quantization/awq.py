"""AWQ on one matrix: columns with large inputs are multiplied by s before rounding and divided by it after.

Lin et al. 2024: s_j = (mean |x_j|)^r / sqrt(max s min s), W' = Q(W diag(s)) diag(1/s), with r of 0, 0.05 ... 0.95 that
makes the output's error least; then each group's range is made smaller where that makes it less still. r = 0 is
rounding to the nearest, so that the best r is never worse on the inputs it was chosen on.

Here s stays beside the codes (fp32, 32 bits a column). In a whole model it is folded into what stands before, where
that is valid: `lab.quantization.awq_search`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput
from lab.models.linear import check_weight
from lab.quantization.affine import AffineWeight, affine_of, decode_groups, encode_groups, grouped, ungrouped
from lab.quantization.clipping import Clip
from lab.quantization.grid import Grid
from lab.quantization.method import Quantizing
from lab.quantization.nearest import Nearest

RATIOS = tuple(step / 20 for step in range(20))
UNCLIPPED = ("q_proj", "k_proj")
"""Matrices whose ranges are not searched, as in AWQ's own code: small errors of scores are large ones of attention."""
LEAST_TOKENS = 2
LEAST_MEAN, LARGEST_SCALE = 1e-6, 1e4
PROTECTED = 8
"""Channels that are named as protected, those with the largest scales."""


@dataclass(frozen=True)
class AwqWeight(AffineWeight):
    """An `AffineWeight` and what the search found.

    Attributes:
        ratios: the r tried.
        errors: of each, the output's mean square error over its mean square.
        ratio: the best r.
        protected: columns with the largest scales, largest first; none if all are equal.
        clipped: whether smaller ranges of groups made the output's error less.
    """

    ratios: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    ratio: float = 0.0
    protected: tuple[int, ...] = ()
    clipped: bool = False


@dataclass(frozen=True)
class Awq:
    """The method. See `lab.quantization.method.Method`.

    Attributes:
        grid: levels and groups.
        clip: whether to search smaller ranges too, down to half.
    """

    grid: Grid = field(default_factory=Grid)
    clip: bool = True

    name: ClassVar[str] = "awq"
    label: ClassVar[str] = "AWQ"
    wants_inputs: ClassVar[bool] = True
    wants_hessian: ClassVar[bool] = True

    def quantize(self, weight: Tensor, inputs: LayerInputs | None = None) -> Quantizing:
        """See `Method`. Errors are measured by the Hessian, which has all inputs in it, else on the kept inputs.

        Raises:
            BadInput: also inputs of fewer than two tokens.
        """
        check_weight(weight)
        inputs = check_inputs(inputs, weight.shape[1])
        dense = weight.detach().float()
        full = output_error(dense, inputs)
        errors = []
        for ratio in RATIOS:
            scales = channel_scales(inputs.mean_abs, ratio)
            change = rounded(dense * scales, self.grid).div_(scales).sub_(dense)
            errors.append(output_error(change, inputs) / full if full > 0 else 0.0)
            yield 0.8 * (ratio + 0.05)
        ratio = RATIOS[min(range(len(RATIOS)), key=errors.__getitem__)]
        scales = channel_scales(inputs.mean_abs, ratio)
        result, clipped = yield from quantize_scaled(dense, scales, inputs, self.grid, clip=self.clip)
        return AwqWeight(
            grid=self.grid,
            shape=result.shape,
            codes=result.codes,
            affine=result.affine,
            channel_scales=scales if ratio > 0 else None,
            notes=result.notes,
            ratios=RATIOS,
            errors=tuple(errors),
            ratio=ratio,
            protected=protected(scales),
            clipped=clipped,
        )


def quantize_scaled(
    dense: Tensor, scales: Tensor, inputs: LayerInputs, grid: Grid, *, clip: bool
) -> Generator[float, None, tuple[AffineWeight, bool]]:
    """Codes of `dense` times `scales` (which are not recorded in them), with smaller ranges where that is better.

    Args:
        dense: (out, in) fp32.
        scales: (in,).
        inputs: of `dense`, without the scales.

    Returns:
        The codes, and whether any range was made smaller.
    """
    weight = dense * scales
    plain = yield from _affine(Nearest(grid).quantize(weight))
    if not clip:
        return plain, False
    scaled = scaled_inputs(inputs, scales)
    clipped = yield from _affine(Nearest(grid, Clip("output_error")).quantize(weight, scaled))
    # Each group was searched by itself; together they must be better too.
    before, after = (output_error(made.dequantize().sub_(weight), scaled) for made in (plain, clipped))
    return (clipped, True) if after < before else (plain, False)


def _affine(quantizing: Quantizing) -> Generator[float, None, AffineWeight]:
    while True:
        try:
            next(quantizing)
        except StopIteration as end:
            made: AffineWeight = end.value
            return made
        yield 0.9


def channel_scales(mean_abs: Tensor, ratio: float) -> Tensor:
    """s = mean|x|^r / sqrt(max s min s), (in,); exactly 1 for r = 0, and 1 where an input was always 0."""
    alive = torch.isfinite(mean_abs) & (mean_abs > LEAST_MEAN)
    if ratio == 0 or not bool(alive.any()):
        return torch.ones_like(mean_abs)
    powers = mean_abs.clamp(min=LEAST_MEAN).pow(ratio)
    living = powers[alive]
    scales = powers / (living.max() * living.min()).sqrt()
    return torch.where(alive, scales, 1.0).clamp_(1.0 / LARGEST_SCALE, LARGEST_SCALE)


def protected(scales: Tensor) -> tuple[int, ...]:
    """The columns with the largest scales, largest first; none if all are equal."""
    if float(scales.max()) == float(scales.min()):
        return ()
    return tuple(scales.topk(min(PROTECTED, len(scales))).indices.tolist())


def rounded(weight: Tensor, grid: Grid) -> Tensor:
    """`weight` rounded to the nearest levels, (out, in) fp32, a fresh tensor."""
    groups = grouped(weight, grid)
    affine = affine_of(weight, grid)
    decoded = decode_groups(encode_groups(groups, affine, grid), affine, grid)
    return ungrouped(decoded, (weight.shape[0], weight.shape[1])).clone()


def output_error(change: Tensor, inputs: LayerInputs) -> float:
    """The mean over positions of |D x|^2 for a change D of the weights, (out, in)."""
    if inputs.hessian is not None:
        return max(0.0, float((change @ inputs.hessian).mul_(change).sum(dtype=torch.float64)) / 2)
    product = inputs.rows @ change.t()
    return float(product.square_().sum(dtype=torch.float64)) / max(1, len(inputs.rows))


def scaled_inputs(inputs: LayerInputs, scales: Tensor) -> LayerInputs:
    """The inputs as they are once 1 / `scales` is folded into what stands before."""
    hessian = inputs.hessian
    return replace(
        inputs,
        hessian=None if hessian is None else hessian / scales / scales[:, None],
        mean_abs=inputs.mean_abs / scales,
        mean_square=inputs.mean_square / scales.square(),
        rows=inputs.rows / scales,
    )


def check_inputs(inputs: LayerInputs | None, columns: int) -> LayerInputs:
    """Refuse inputs that no scale can be learned from.

    Raises:
        BadInput: none, of fewer than two tokens, or of another width.
    """
    if inputs is None:
        raise BadInput("AWQ needs a layer's calibration inputs.", remedy="Calibrate on a text first.")
    if inputs.tokens < LEAST_TOKENS:
        raise BadInput(
            f"AWQ was calibrated on {inputs.tokens} token{'' if inputs.tokens == 1 else 's'}; at least {LEAST_TOKENS} "
            "are needed.",
            remedy="Give a longer calibration text.",
        )
    if len(inputs.mean_abs) != columns:
        raise BadInput(
            f"Inputs of {len(inputs.mean_abs)} channels do not fit a weight with {columns} inputs.",
            remedy="Calibrate this very layer.",
        )
    return inputs
