"""Whether a matrix lies on a quantization grid: then quantizing it again on the same grid changes nothing.

The packaged model's weights come from a Q4_1 file: groups of 32 along the input axis, 4 bits, scale and minimum in
fp16. A 4-bit experiment with such groups finds almost no error there, which is true and misleading.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_LEVELS = 15


@dataclass(frozen=True)
class GridCheck:
    """A measurement on one matrix.

    Attributes:
        max_error: the largest change of a weight when it is put on the grid of its group, absolute.
        changed: the share of the weights that change at all, 0..1.
    """

    max_error: float
    changed: float

    @property
    def on_grid(self) -> bool:
        return self.changed == 0.0


def requantize_float_minimum(weight: torch.Tensor, group: int = 32) -> torch.Tensor:
    """`weight` [out, in] rounded to 16 levels between the minimum and maximum of each group of inputs.

    As in Q4_1: w' = scale * round((w - min) / scale) + min, with scale = (max - min) / 15 and min in floating point.

    Raises:
        ValueError: `group` does not divide the inputs.
    """
    if weight.ndim != 2 or weight.shape[1] % group:
        raise ValueError(f"groups of {group} do not divide a matrix of shape {tuple(weight.shape)}")
    values = weight.detach().to("cpu", torch.float32).reshape(-1, group)
    low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
    scale = (high - low) / _LEVELS
    steps = torch.where(scale > 0, (values - low) / scale, torch.zeros_like(values)).round()
    return (steps * scale + low).reshape(weight.shape)


def check_grid(weight: torch.Tensor, group: int = 32) -> GridCheck:
    """Measure how far `weight` [out, in] is from the grid of `requantize_float_minimum`."""
    change = (requantize_float_minimum(weight, group) - weight.detach().to("cpu", torch.float32)).abs()
    return GridCheck(max_error=float(change.max()), changed=float((change > 0).float().mean()))
