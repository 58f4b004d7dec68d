"""Several tokens through a linear module, as fast as here is possible: between one token and a long chunk.

Torch hands `F.linear` of 2 to 8 rows to a routine that is slower than the memory is read; the same product as
W x^T is not. Measured on an AMD EPYC (AVX2), two threads, 3072 x 576 in fp32, ms for 1, 2, 4, 8 rows: `F.linear`
.57, 1.09, .97, .84, W x^T .54, .34, .38, .69 (three rows take longer than four, so they are padded). bf16 on a CPU
without bf16 arithmetic: see `half_pack`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lab.decoding.half_pack import half_product, packed_weight
from lab.decoding.matvec import is_plain

FEW = 16
"""Rows up to which W x^T is taken."""


def padded_rows(rows: int) -> int:
    """How many rows to send for so many: three cost more than four."""
    return 4 if rows == 3 else rows


def linear_rows(module: nn.Module, x: Tensor) -> Tensor:
    """What `module(x)` gives, faster where it can be.

    Args:
        module: a linear module; any that is not a plain `nn.Linear` is called as it stands.
        x: (..., in), contiguous.

    Returns:
        (..., out), of x's dtype. Sums may be ordered differently than in the module's own forward.
    """
    if x.device.type != "cpu" or not is_plain(module):
        return _called(module, x)
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)  # noqa: S101 - a plain nn.Linear has one
    rows = x.reshape(-1, x.shape[-1])
    count = rows.shape[0]
    packed = packed_weight(weight) if count > 1 else None
    if packed is not None:
        product = half_product(rows.float(), packed).to(x.dtype)
    elif 1 < count <= FEW and weight.dtype == torch.float32:
        if count == 3:
            rows = torch.cat((rows, rows[-1:]))
        product = torch.mm(weight, rows.t())[:, :count].t().contiguous()
    else:
        return _called(module, x)
    if isinstance(bias, Tensor):
        product = product + bias
    return product.view(*x.shape[:-1], weight.shape[0])


def _called(module: nn.Module, x: Tensor) -> Tensor:
    result: Tensor = module(x)
    return result


class RowsProduct:
    """y = x W^T + b for a fixed number of rows, from one fixed fp32 buffer.

    Args:
        module: a linear module; any that is not plain is called, with rows of its weights' dtype.
        x: (row, in) fp32, contiguous, read at each call.
    """

    def __init__(self, module: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
        self._module, self._x, self._dtype = module, x, dtype
        self._across = x.t()
        self._packed = self._weight = self._bias = self._y = None
        if not is_plain(module):
            return
        weight, bias = module.weight, module.bias
        assert isinstance(weight, Tensor)  # noqa: S101 - a plain nn.Linear has one
        self._bias = bias.detach().float() if isinstance(bias, Tensor) else None
        self._packed = packed_weight(weight)
        if self._packed is None and weight.dtype == torch.float32 and x.shape[0] <= FEW:
            self._weight = weight.detach()
            self._y = x.new_empty(weight.shape[0], x.shape[0])

    def __call__(self) -> Tensor:
        """(row, out) fp32; with plain fp32 weights a transposed view of a buffer that the next call writes again."""
        if self._packed is not None:
            y = half_product(self._x, self._packed)
        elif self._weight is not None and self._y is not None:
            torch.mm(self._weight, self._across, out=self._y)
            y = self._y.t()
        else:
            result: Tensor = self._module(self._x.to(self._dtype))
            return result.float()
        return y if self._bias is None else y + self._bias
