"""Double quantization: the largest magnitudes of blocks are quantized themselves, to 8 bits.

Their mean is taken off, what is left goes in blocks of 256 to the nearest of 256 numbers between -1 and 1 times the
block's own largest magnitude, and the mean is added back (Dettmers et al., "QLoRA", 2023, section 3). The 256 numbers
are the signed dynamic map (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022): a decimal exponent
from -6 to 0, and the more bits of fraction the larger it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

BLOCK = 256
_EXPONENTS = 7


@lru_cache(maxsize=1)
def dynamic_map() -> Tensor:
    """(256,) fp32, ascending: for exponent e = 0 to 6 the middles of 2^e equal parts of [0.1, 1] times 10^(e - 6), both
    signs; and 0 and 1."""
    numbers = [0.0, 1.0]
    for exponent in range(_EXPONENTS):
        bounds = torch.linspace(0.1, 1.0, (1 << exponent) + 1, dtype=torch.float32)
        middles = (10.0 ** (exponent - _EXPONENTS + 1)) * ((bounds[:-1] + bounds[1:]) / 2.0)
        numbers += middles.tolist() + (-middles).tolist()
    with torch.inference_mode(False):  # kept for good: must be usable outside whatever mode asks first
        return torch.tensor(sorted(numbers), dtype=torch.float32)


@dataclass(frozen=True)
class DoubleQuantized:
    """Numbers at 8 bits each.

    Attributes:
        codes: (count,) uint8, places in the dynamic map.
        scales: (ceil(count / 256),) fp32: the largest magnitude of each block, the mean taken off.
        mean: () fp32.
    """

    codes: Tensor
    scales: Tensor
    mean: Tensor

    @property
    def bits(self) -> int:
        """8 a number, 32 a block of 256 and 32 for the mean."""
        return 8 * self.codes.numel() + 32 * self.scales.numel() + 32

    def dequantize(self) -> Tensor:
        """(count,) fp32, the mean added back.

        Magnitudes were quantized: where rounding would make one negative, and so turn the signs of its block, it is 0.
        """
        numbers = dynamic_map().to(self.codes.device)[self.codes.long()]
        scales = self.scales.repeat_interleave(BLOCK)[: numbers.numel()]
        return (numbers * scales + self.mean).clamp_(min=0.0)


def double_quantize(magnitudes: Tensor) -> DoubleQuantized:
    """Quantize (count,) fp32 magnitudes, none negative, at least one."""
    mean = magnitudes.mean()
    rest = magnitudes - mean
    short = -rest.numel() % BLOCK
    blocks = torch.nn.functional.pad(rest, (0, short)).view(-1, BLOCK)
    scales = blocks.abs().amax(dim=1)
    tiny = torch.finfo(torch.float32).tiny
    scaled = torch.where(scales[:, None] < tiny, 0.0, blocks / scales.clamp(min=tiny)[:, None])
    numbers = dynamic_map().to(magnitudes.device)
    codes = torch.bucketize(scaled.reshape(-1)[: rest.numel()], (numbers[:-1] + numbers[1:]) / 2)
    return DoubleQuantized(codes.to(torch.uint8), scales, mean)
