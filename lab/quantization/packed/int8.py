"""Eight bits a weight, one scale a row: s = max|w| / 127, q = round(w / s), w' = s q.

Symmetric, codes -127 to 127, so that -w is coded as -q. The scale is rounded to bf16 before the codes are made, since
the kernel (torch's `_weight_int8pack_mm`) takes it so; then |w - w'| <= s / 2 for the very scale that is used.
Source of the scheme: LLM.int8 (Dettmers et al. 2022), its vector-wise rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.models.linear import check_weight
from lab.quantization.grid import SMALLEST_NORMAL

LARGEST = 127
WIDTH = 32
"""The kernel multiplies whole vectors; at another width it reads past the row, and says nothing."""


@dataclass(frozen=True)
class Int8Weight:
    """A weight matrix as canonical codes; the kernel reads them as they are.

    Attributes:
        codes: (out, in) int8, -127 to 127.
        scales: (out,) bf16; 0 for a row of zeros.
    """

    codes: Tensor
    scales: Tensor

    bits = 8
    few = 16
    """Rows up to which the kernel is faster than multiplying the widened matrix (measured on AVX2: 12 to 16)."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.codes.shape[0], self.codes.shape[1]

    @property
    def bytes(self) -> int:
        """Of codes and scales, as a file holds them."""
        return self.codes.numel() + 2 * self.scales.numel()

    @property
    def resident_bytes(self) -> int:
        """Of memory taken: the codes are also what the kernel reads."""
        return self.bytes

    def __deepcopy__(self, memo: dict[int, Any]) -> Int8Weight:
        return self  # nothing changes it: shells share it as they share tensors

    def multiply(self, x: Tensor) -> Tensor:
        """(rows, in) bf16 times the matrix: (rows, out) bf16, by the packed kernel."""
        product: Tensor = torch.ops.aten._weight_int8pack_mm(x, self.codes, self.scales)
        return product

    def dense(self, start: int, stop: int) -> Tensor:
        """Rows start to stop as they count, (stop - start, in) fp32."""
        return self.codes[start:stop].float().mul_(self.scales[start:stop, None].float())


def check_width(columns: int) -> None:
    """Refuse a width that the kernel cannot multiply.

    Raises:
        BadInput: the width and what it must divide by.
    """
    if columns % WIDTH:
        raise BadInput(
            f"The int8 kernel cannot multiply rows of {columns} weights: {columns} is no multiple of {WIDTH}.",
            remedy="Leave this module dense.",
        )


def quantize_int8(weight: Tensor, name: str = "the weight") -> Int8Weight:
    """The canonical codes of `weight`.

    Args:
        weight: (out, in), any floating dtype, finite.
        name: for messages.

    Raises:
        BadInput: a width the kernel cannot take, or a weight that is not finite.
    """
    check_width(weight.shape[1])
    check_weight(weight, name)
    wide = weight.detach().float()
    scales = (wide.abs().amax(dim=1) / LARGEST).bfloat16()
    scales = torch.where(scales < SMALLEST_NORMAL, torch.zeros_like(scales), scales)
    steps = scales.float()
    divisor = torch.where(steps == 0, torch.ones_like(steps), steps)[:, None]
    codes = wide.div(divisor).round_().clamp_(-LARGEST, LARGEST)
    codes = torch.where(steps[:, None] == 0, torch.zeros_like(codes), codes)
    return Int8Weight(codes.to(torch.int8), scales)
