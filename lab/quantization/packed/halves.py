"""One token through int8 matrices at the speed of reading them, where torch has FBGEMM's kernel (x86).

FBGEMM multiplies 8-bit weights with 7-bit inputs: much faster on AVX2 than torch's weight-only kernel, but 7 bits of
input are too few. So a token goes in as two rows: x rounded to 7 bits, and what that left, 126 times as large. The
kernel is bound by reading the weights, so that two rows take as long as one, and 14 bits remain: 20 times as exact as
the weight-only kernel, whose inputs and results are bf16. Measured on an AMD EPYC (AVX2), one thread, a 3072 x 576
matrix: fp32 1.0, weight-only kernel .68, this .40; relative error of the product 2.4e-3 and 1.1e-4.

The kernel keeps the codes in an order of its own, a second copy. It is made where a model is packed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from lab.quantization.packed.int8 import Int8Weight
from lab.steps import finished

LEVELS = 63
"""7 bits with sign: two products of a 7-bit input and an 8-bit weight fit into the kernel's 16-bit sums."""
MIDDLE = 64
FINER = 2 * LEVELS
BLOCK_WEIGHTS = 9_500_000
"""About so many are brought into the kernel's order at once: 28 million of a large head take 0.3 s on one core, and
three blocks decode as fast as one."""
SMALLEST = 1e-30
"""Inputs all below it are taken as zero: their scale would lose its bits."""


class HalvesKernel:
    """Int8 matrices that read the same input, one below the other, in the kernel's own form. Not changed once made.

    Args:
        weights: (out, in) each, with one `in`.
        blocks: the same in the kernel's form, (rows, packed) from the first row on; None: packed now, all at once.
    """

    def __init__(self, weights: Sequence[Int8Weight], blocks: Sequence[tuple[int, Any]] | None = None) -> None:
        self.weights = tuple(weights)
        self._blocks = finished(_packing(weights)) if blocks is None else blocks
        self.rows = sum(w.shape[0] for w in weights)
        self.resident_bytes = sum(w.codes.numel() for w in weights) + 8 * self.rows

    def __deepcopy__(self, memo: dict[int, Any]) -> HalvesKernel:
        return self  # shells share it as they share tensors

    def product(self, x: Tensor, y: Tensor, *, add: bool) -> Callable[[], None]:
        """y = W' x, or y += W' x, from one fixed buffer into another.

        Args:
            x: (in,) contiguous, read at each call.
            y: (out,) contiguous, written at each call.
            add: add to `y` instead of overwriting it.
        """
        halves = torch.empty(2, len(x))
        coarse, rest = halves[0], halves[1]
        wide = x if x.dtype == torch.float32 else torch.empty(len(x))
        kernel = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        parts = torch.split(y, [rows for rows, _ in self._blocks])
        blocks = [(packed, part) for (_, packed), part in zip(self._blocks, parts, strict=True)]
        plain = y.dtype == torch.float32

        def multiply() -> None:
            if wide is not x:
                wide.copy_(x)
            largest = torch.linalg.vector_norm(wide, math.inf).item()
            if not math.isfinite(largest):
                y.fill_(math.nan)
                return
            step = largest / LEVELS if largest > SMALLEST else 1.0
            torch.div(wide, step, out=coarse).round_().mul_(step)
            torch.sub(wide, coarse, out=rest).mul_(FINER)
            for packed, part in blocks:
                result = kernel(halves, step, MIDDLE, packed)
                if add:
                    part.add_(result[0]).add_(result[1], alpha=1 / FINER)
                elif plain:
                    torch.add(result[0], result[1], alpha=1 / FINER, out=part)
                else:
                    part.copy_(torch.add(result[0], result[1], alpha=1 / FINER))

        return multiply


def making_halves(weights: Sequence[Int8Weight]) -> Generator[None, None, HalvesKernel]:
    """As `HalvesKernel`, pausing between blocks of rows."""
    return HalvesKernel(weights, (yield from _packing(weights)))


@cache
def has_kernel() -> bool:
    """Whether torch has the kernel here, and it is right: not built in on every processor."""
    if not {"x86", "fbgemm"} & set(torch.backends.quantized.supported_engines):
        return False
    try:
        kernel = HalvesKernel([Int8Weight(torch.full((8, 32), 127, dtype=torch.int8), torch.ones(8).bfloat16())])
        y = torch.zeros(8)
        kernel.product(torch.ones(32), y, add=False)()
    except (RuntimeError, AttributeError):
        return False
    return bool(torch.allclose(y, torch.full((8,), 127.0 * 32), rtol=1e-3))


def _packing(weights: Sequence[Int8Weight]) -> Generator[None, None, list[tuple[int, Any]]]:
    codes = weights[0].codes if len(weights) == 1 else torch.cat([w.codes for w in weights])
    scales = torch.cat([w.scales for w in weights])
    # Even blocks: a small last one would be shared badly between threads.
    count = max(1, round(codes.numel() / BLOCK_WEIGHTS))
    size = -(-len(codes) // count // 64) * 64
    blocks: list[tuple[int, Any]] = []
    for some, steps in zip(torch.split(codes, size), torch.split(scales, size), strict=True):
        if blocks:
            yield
        blocks.append((len(some), _pack(some, steps)))
    return blocks


def _pack(codes: Tensor, scales: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = scales.double()
        # A row of zeros has the scale 0, which the kernel does not take; its codes are zeros too.
        steps = torch.where(steps > 0, steps, 1.0)
        zeros = torch.zeros(len(steps), dtype=torch.long)
        weight = torch._make_per_channel_quantized_tensor(codes, steps, zeros, 0)
        return torch.ops.quantized.linear_prepack(weight, None)
