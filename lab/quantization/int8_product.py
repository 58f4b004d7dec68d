"""Whole numbers times whole numbers, exactly: int8 by int8 gives int32, whatever the width.

A product of two codes is at most 127^2 = 16,129 (or 128^2), so fp16 overflows after four of them and fp32 stops being
exact after 1,023; both happen in kernels that accumulate in floating point.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lab.errors import BadInput

PIECE = 1023
"""Products of -128..127 that fp32 adds without rounding: 1023 * 128^2 < 2^24."""


def int8_product(left: Tensor, right: Tensor) -> Tensor:
    """left right^T, exact.

    Pieces of at most 1,023 columns are multiplied in fp32, where every partial sum is a whole number below 2^24, in
    whatever order it is added; the pieces are added as int32. It is as exact as torch's `_int_mm` and does not depend
    on the instructions that a CPU has.

    Args:
        left: (rows, in) int8.
        right: (out, in) int8.

    Returns:
        (rows, out) int32. Exact up to 131,071 columns, where the largest sum still fits.

    Raises:
        BadInput: other dtypes, widths that differ, or more columns.
    """
    if left.dtype != torch.int8 or right.dtype != torch.int8 or left.shape[-1] != right.shape[-1]:
        raise BadInput(
            f"An int8 product takes (rows, in) and (out, in), not {tuple(left.shape)} {left.dtype} and "
            f"{tuple(right.shape)} {right.dtype}."
        )
    width = left.shape[-1]
    if width * 128 * 128 >= 1 << 31:
        raise BadInput(f"Sums over {width:,} columns of int8 products do not fit in int32.", remedy="Split the matrix.")
    total = torch.zeros(left.shape[0], right.shape[0], dtype=torch.int32, device=left.device)
    for start in range(0, width, PIECE):
        piece = slice(start, min(start + PIECE, width))
        total += torch.mm(left[:, piece].float(), right[:, piece].float().t()).to(torch.int32)
    return total
