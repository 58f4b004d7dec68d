"""Four bits a weight, a scale and a float zero point for each group of a row: w' = (q - 8) s + z.

s = (max - min) / 15 and z = min + 8 s over the group, both rounded to bf16 before the codes
q = round((w - z) / s) + 8 are made, since the kernel (torch's `_weight_int4pack_mm_for_cpu`) takes them so. That is
asymmetric round-to-nearest with a float minimum, the form of torch's int4 kernels and of GGUF's Q4_1. Groups lie
along the input.

The kernel reads the codes in an order of its own that differs between processors: what is kept and what a file
holds are the canonical codes, packed at load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.errors import BadInput
from lab.models.linear import check_weight
from lab.quantization.grid import SMALLEST_NORMAL

LEVELS = 15
MIDDLE = 8
GROUP_SIZES = (32, 64, 128, 256)
"""What the kernel offers."""
ROWS = 16
"""The kernel takes rows of the matrix by so many."""


@dataclass(frozen=True)
class Int4Weight:
    """A weight matrix as canonical codes, and packed for the kernel.

    Attributes:
        nibbles: (out, in / 2) uint8: the codes 0 to 15, the even column in the lower half of a byte.
        scales: (out, group) bf16; 0 where a group is constant.
        zeros: (out, group) bf16: the value of code 8.
        group_size: weights that share a scale.
        packed: the same codes in the kernel's order; None where the kernel is not there.
        scales_zeros: (group, out, 2) bf16, for the kernel.
    """

    nibbles: Tensor
    scales: Tensor
    zeros: Tensor
    group_size: int
    packed: Tensor | None
    scales_zeros: Tensor

    bits = 4
    few = 32
    """Rows up to which the kernel is faster than multiplying the widened matrix (measured on AVX2)."""

    @classmethod
    def from_codes(cls, codes: Tensor, scales: Tensor, zeros: Tensor, group_size: int) -> Int4Weight:
        """Pack canonical codes.

        Args:
            codes: (out, in) integers, 0 to 15.
            scales: (out, in / group_size).
            zeros: likewise.

        Raises:
            BadInput: sizes that the kernel cannot take.
        """
        check_sizes(codes.shape[0], codes.shape[1], group_size)
        nibbles = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
        scales, zeros = scales.bfloat16(), zeros.bfloat16()
        across = torch.stack((scales, zeros), dim=-1).transpose(0, 1).contiguous()
        packed = None
        if codes.device.type == "cpu":
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1)
        return cls(nibbles, scales, zeros, group_size, packed, across)

    @property
    def codes(self) -> Tensor:
        """(out, in) uint8, 0 to 15."""
        return torch.stack((self.nibbles & LEVELS, self.nibbles >> 4), dim=-1).flatten(1)

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.nibbles.shape[0], 2 * self.nibbles.shape[1]

    @property
    def bytes(self) -> int:
        """Of codes, scales and zero points, as a file holds them."""
        return self.nibbles.numel() + 2 * (self.scales.numel() + self.zeros.numel())

    @property
    def resident_bytes(self) -> int:
        """Of memory taken: the canonical codes and the kernel's own order of them."""
        packed = 0 if self.packed is None else self.packed.numel() * self.packed.element_size()
        return self.bytes + packed + 2 * self.scales_zeros.numel()

    def __deepcopy__(self, memo: dict[int, Any]) -> Int4Weight:
        return self  # nothing changes it: shells share it as they share tensors

    def multiply(self, x: Tensor) -> Tensor:
        """(rows, in) bf16 times the matrix: (rows, out) bf16, by the packed kernel."""
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed, self.group_size, self.scales_zeros)
        return product

    def dense(self, start: int, stop: int) -> Tensor:
        """Rows start to stop as they count, (stop - start, in) fp32."""
        nibbles = self.nibbles[start:stop]
        wide = torch.empty(nibbles.shape[0], nibbles.shape[1], 2, device=nibbles.device)
        wide[..., 0].copy_(nibbles & LEVELS)
        wide[..., 1].copy_(nibbles >> 4)
        groups = wide.view(nibbles.shape[0], -1, self.group_size).sub_(MIDDLE)
        groups.mul_(self.scales[start:stop, :, None].float()).add_(self.zeros[start:stop, :, None].float())
        return groups.flatten(1)


def check_sizes(rows: int, columns: int, group_size: int) -> None:
    """Refuse sizes that the kernel cannot take.

    Raises:
        BadInput: a group size that does not exist or does not divide the width (those that would are named), or
            a number of rows that is no multiple of 16.
    """
    fitting = [size for size in GROUP_SIZES if columns % size == 0]
    if group_size not in GROUP_SIZES:
        raise BadInput(
            f"The int4 kernel has no group size {group_size}.",
            remedy=f"Choose one of {', '.join(map(str, GROUP_SIZES))}.",
        )
    if columns % group_size:
        names = ", ".join(map(str, fitting))
        raise BadInput(
            f"Groups of {group_size} do not divide rows of {columns} weights ({columns} = {columns // group_size} x "
            f"{group_size} + {columns % group_size}).",
            remedy=f"Choose a group size of {names}." if fitting else "Leave this module dense: no group size fits.",
        )
    if rows % ROWS:
        raise BadInput(
            f"The int4 kernel cannot take a matrix of {rows} rows: {rows} is no multiple of {ROWS}.",
            remedy="Leave this module dense, or take 8 bits.",
        )


def quantize_int4(weight: Tensor, group_size: int, name: str = "the weight") -> Int4Weight:
    """The canonical codes of `weight`, packed.

    Args:
        weight: (out, in), any floating dtype, finite.
        group_size: weights that share a scale, along the input.
        name: for messages.

    Raises:
        BadInput: sizes that the kernel cannot take, or a weight that is not finite.
    """
    check_sizes(weight.shape[0], weight.shape[1], group_size)
    check_weight(weight, name)
    groups = weight.detach().float().view(weight.shape[0], -1, group_size)
    low, high = torch.aminmax(groups, dim=-1)
    scales = ((high - low) / LEVELS).bfloat16()
    constant = scales < SMALLEST_NORMAL
    scales = scales.masked_fill(constant, 0.0)
    zeros = torch.where(constant, low, low + MIDDLE * scales.float()).bfloat16()
    step = scales.float().masked_fill(constant, 1.0)[..., None]
    codes = (groups - zeros.float()[..., None]).div_(step).round_().add_(MIDDLE).clamp_(0, LEVELS)
    codes = codes.masked_fill(constant[..., None], MIDDLE).to(torch.int32).flatten(1)
    return Int4Weight.from_codes(codes, scales, zeros, group_size)
