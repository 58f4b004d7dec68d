"""Several tokens through a linear module, as fast as here is possible: between one token and a long chunk.

Torch hands `F.linear` of 2 to 8 rows to a routine that is slower than the memory is read; the same product as
W x^T is not. Measured on an AMD EPYC (AVX2), two threads, 3072 x 576 in fp32, ms for 1, 2, 4, 8 rows: `F.linear`
.57, 1.09, .97, .84, W x^T .54, .34, .38, .69 (three rows take longer than four, so they are padded). bf16 on a CPU
without bf16 arithmetic: see `half_pack`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lab.decoding.half_pack import half_product, packed_weight
from lab.decoding.matvec import has_hooks, is_plain, out_features

FEW = 16
"""Rows up to which W x^T is taken."""


def padded_rows(rows: int) -> int:
    """How many rows to send for so many: three cost more than four."""
    return 4 if rows == 3 else rows


def linear_rows(module: nn.Module, x: Tensor) -> Tensor:
    """What `module(x)` gives, faster where it can be.

    Args:
        module: a linear module; one that is not a plain `nn.Linear` is asked for its own `linear_rows`, or called.
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
    own = None if has_hooks(module) else getattr(module, "linear_rows", None)
    result: Tensor = module(x) if own is None else own(x)
    return result


class RowsProduct:
    """y = x W^T + b of one or several linear modules, side by side, for a fixed number of rows from a fixed buffer.

    Args:
        modules: linear modules that read the same rows; others than plain ones are called, in `dtype`.
        x: (row, in) fp32, contiguous, read at each call.
        dtype: of the model's weights.
        scratch: where products of fp32 weights go; shared by all products whose results are used up before the
            next one of as many outputs. Written over by their calls.
    """

    def __init__(self, modules: Sequence[nn.Module], x: Tensor, dtype: torch.dtype, scratch: Scratches) -> None:
        self._x, self._dtype = x, dtype
        self._across = x.t()
        self._y: Tensor | None = None
        if x.shape[0] <= FEW and all(is_plain(m) and m.weight.dtype == torch.float32 for m in modules):
            outs = [out_features(module) for module in modules]
            self._y = scratch(sum(outs), x.shape[0])
            self._products = [
                (_detached(module.weight), None if module.bias is None else _detached(module.bias)[:, None], y)
                for module, y in zip(modules, torch.split(self._y, outs), strict=True)
            ]
            self._rows = self._y.t()
        else:
            self._parts = [_Part(module, x, dtype) for module in modules]

    def __call__(self) -> Tensor:
        """(row, out) fp32, good until the next product; the view of a transposed buffer where weights are fp32."""
        if self._y is None:
            parts = [part() for part in self._parts]
            return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        for weight, bias, y in self._products:
            torch.mm(weight, self._across, out=y)
            if bias is not None:
                y.add_(bias)
        return self._rows


class Scratches:
    """One (out, row) fp32 buffer for each number of outputs."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], Tensor] = {}

    def __call__(self, out: int, rows: int) -> Tensor:
        """The buffer for so many outputs and rows."""
        if (out, rows) not in self._made:
            self._made[out, rows] = torch.empty(out, rows)
        return self._made[out, rows]


class _Part:
    """One module's product that is no W x^T."""

    def __init__(self, module: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
        self._module, self._x, self._dtype = module, x, dtype
        self._packed = self._bias = None
        if is_plain(module):
            self._packed = packed_weight(module.weight)  # type: ignore[arg-type]
            self._bias = None if module.bias is None else _detached(module.bias).float()

    def __call__(self) -> Tensor:
        if self._packed is None:
            result: Tensor = self._module(self._x.to(self._dtype))
            return result.float()
        y = half_product(self._x, self._packed)
        return y if self._bias is None else y.add_(self._bias)


def _detached(parameter: Tensor | nn.Module) -> Tensor:
    assert isinstance(parameter, Tensor)  # noqa: S101 - a plain nn.Linear has such
    return parameter.detach()
