"""NF4: four bits whose 16 levels lie where normally distributed weights lie (Dettmers et al., "QLoRA", 2023).

w' = level[code] * a, with a the largest magnitude of a block of 64 neighbours in the flattened matrix: a block may
reach from one row into the next, and the last one may be short. Codes equal those of bitsandbytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, shown
from lab.models.linear import check_weight
from lab.quantization.bit_packing import pack_codes
from lab.quantization.double_quant import DoubleQuantized, double_quantize
from lab.quantization.grid import SMALLEST_NORMAL
from lab.quantization.method import Quantizing
from lab.quantization.normal_float import ZERO_CODE, normal_float_borders, normal_float_levels
from lab.quantization.quantized import Storage

BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
PIECE = 1 << 20
"""Weights that are encoded between two pauses; a multiple of every block size."""


@dataclass(frozen=True)
class Nf4Weight:
    """A `Quantized` matrix in NF4.

    Attributes:
        block: weights that share a magnitude.
        shape: (out, in).
        codes: (out, in) uint8, 0 to 15.
        magnitudes: (blocks,) fp32, the largest of each block; or the same at 8 bits each. 0 for a block whose weights
            are all zero or below the smallest normal number.
        notes: see `Quantized`.
    """

    block: int
    shape: tuple[int, int]
    codes: Tensor
    magnitudes: Tensor | DoubleQuantized
    notes: tuple[str, ...] = ()

    @property
    def storage(self) -> Storage:
        """See `Quantized`: magnitudes of 32 bits, or of 8 and what double quantization needs itself."""
        weights, magnitudes = self.shape[0] * self.shape[1], self.magnitudes
        scale_bits = magnitudes.bits if isinstance(magnitudes, DoubleQuantized) else 32 * magnitudes.numel()
        return Storage(weights=weights, code_bits=4 * weights, scale_bits=scale_bits)

    def tensors(self) -> dict[str, Tensor]:
        """See `Quantized`."""
        magnitudes = self.magnitudes
        if isinstance(magnitudes, DoubleQuantized):
            return {
                "codes": self.codes,
                "magnitude_codes": magnitudes.codes,
                "magnitude_scales": magnitudes.scales,
                "magnitude_mean": magnitudes.mean,
            }
        return {"codes": self.codes, "magnitudes": magnitudes}

    def packed(self) -> Tensor:
        """(ceil(out * in / 2),) uint8: two codes a byte, the first in the high half; a last half is the code of 0."""
        flat = self.codes.reshape(-1)
        if flat.numel() % 2:
            flat = torch.cat((flat, flat.new_full((1,), ZERO_CODE)))
        return pack_codes(flat, 4)

    def block_magnitudes(self) -> Tensor:
        """(blocks,) fp32, as they count."""
        magnitudes = self.magnitudes
        return magnitudes.dequantize() if isinstance(magnitudes, DoubleQuantized) else magnitudes

    def dequantize(self) -> Tensor:
        """See `Quantized`."""
        weight = normal_float_levels().to(self.codes.device)[self.codes.reshape(-1).int()]
        magnitudes, full = self.block_magnitudes(), weight.numel() // self.block * self.block
        weight[:full].view(-1, self.block).mul_(magnitudes[: full // self.block, None])
        if full < weight.numel():
            weight[full:] *= magnitudes[-1]
        return weight.view(self.shape)


@dataclass(frozen=True)
class Nf4:
    """The method.

    Attributes:
        block: weights that share a magnitude, one of `BLOCKS`. Bits a weight: 4 + 32 / block.
        double_quant: store the magnitudes at 8 bits: 4 + 8 / block + 32 / (256 block), and 32 for the whole matrix.

    Raises:
        BadInput: another block size.
    """

    name: ClassVar[str] = "nf4"
    label: ClassVar[str] = "NF4"
    wants_inputs: ClassVar[bool] = False
    wants_hessian: ClassVar[bool] = False

    block: int = 64
    double_quant: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.block, bool) or self.block not in BLOCKS:
            raise BadInput(
                f"NF4 has no blocks of {shown(self.block)} weights.",
                remedy=f"Choose one of {', '.join(map(str, BLOCKS))}.",
            )

    def quantize(self, weight: Tensor, inputs: LayerInputs | None = None) -> Quantizing:
        """See `Method`. Any shape fits: blocks run over the flattened matrix."""
        del inputs
        check_weight(weight)
        flat = weight.detach().reshape(-1)
        codes, magnitudes = [], []
        for start in range(0, flat.numel(), PIECE):
            found = encode(flat[start : start + PIECE], self.block)
            codes.append(found[0])
            magnitudes.append(found[1])
            yield min(1.0, (start + PIECE) / flat.numel())
        blocks = torch.cat(magnitudes)
        zero = int((blocks == 0).sum())
        notes = (f"{zero:,} of {blocks.numel():,} blocks are zero",) if zero else ()
        return Nf4Weight(
            block=self.block,
            shape=(weight.shape[0], weight.shape[1]),
            codes=torch.cat(codes).view(weight.shape),
            magnitudes=double_quantize(blocks) if self.double_quant else blocks,
            notes=notes,
        )


def scaled_to_blocks(flat: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Weights divided by the largest magnitude of their block.

    Args:
        flat: (count,), any floating dtype, finite, at least one.

    Returns:
        (count,) fp32 from -1 to 1, and (ceil(count / block),) fp32 magnitudes; both 0 in a block without a normal
        number.
    """
    flat = flat.float()
    full = flat.numel() // block * block
    blocks, rest = flat[:full].view(-1, block), flat[full:]
    magnitudes = blocks.abs().amax(dim=1)
    magnitudes = torch.where(magnitudes < SMALLEST_NORMAL, 0.0, magnitudes)
    # bitsandbytes multiplies by the reciprocal, but divides in the short last block. So do we: equal bit for bit.
    reciprocal = torch.where(magnitudes > 0, 1.0 / magnitudes.clamp(min=SMALLEST_NORMAL), 0.0)
    scaled = (blocks * reciprocal[:, None]).reshape(-1)
    if rest.numel():
        largest = rest.abs().amax()
        if float(largest) < SMALLEST_NORMAL:
            largest = torch.zeros_like(largest)
        scaled = torch.cat((scaled, rest / largest if float(largest) else torch.zeros_like(rest)))
        magnitudes = torch.cat((magnitudes, largest[None]))
    return scaled.clamp_(-1.0, 1.0), magnitudes


def encode(flat: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(count,) weights to (count,) uint8 codes and (ceil(count / block),) fp32 magnitudes.

    A weight half way between two levels takes the lower one; a block of zeros has code 7, whose level is 0.
    """
    scaled, magnitudes = scaled_to_blocks(flat, block)
    return torch.bucketize(scaled, normal_float_borders().to(flat.device)).to(torch.uint8), magnitudes
