"""One token through a weight matrix, as fast as the memory is read.

A matrix times one vector is bound by reading the matrix. On the CPU, torch hands `F.linear` of one token to a
BLAS routine that runs on one thread; the same product as a batch of row blocks (`torch.bmm`) runs on all of
them and reads better even on one. Measured on an AMD EPYC (AVX2), 3072 x 576 in fp32: 12 and 23 GB/s with
one block and with sixteen on two threads, 12 and 15 on one. Long rows on one thread are the exception. Two matrices
as one product (fused gate and up) were 0 to 13% faster than one after the other, and fused QKV no faster; none are
fused, since the loader gives each matrix memory of its own and joining them would take a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

BLOCKS = 16
"""Row blocks at most: more than the cores of a desktop, few enough to stay cheap to start."""

LONG_ROW = 1024
"""On one thread, rows of this many elements or more go through the plain routine."""


def is_plain(module: nn.Module) -> bool:
    """Whether `module` is exactly an `nn.Linear` that nothing wraps: no hook, no replaced forward."""
    return type(module) is nn.Linear and not has_hooks(module)


def has_hooks(module: nn.Module) -> bool:
    """Whether calling `module` does more or other than its class's forward says."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
    )


class MatVec:
    """y = W x + b, or y += W x + b, for one token, from one fixed buffer into another.

    Args:
        weight: (out, in).
        bias: (out,) or None.
        x: (in,) contiguous, read at each call.
        y: (out,) contiguous, written at each call.
        add: add to `y` instead of overwriting it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, x: Tensor, y: Tensor, *, add: bool = False) -> None:
        rows, columns = weight.shape
        blocks = _blocks(weight)
        self._add = add
        self._whole = blocks == 1
        self._weight, self._x, self._y = weight.detach(), x, y
        self._bias = None if bias is None else bias.detach()
        if not self._whole:
            self._weight = self._weight.view(blocks, rows // blocks, columns)
            # The last stride matters: as (0, 1, 1) the same product takes four times as long.
            self._x = x.as_strided((blocks, columns, 1), (0, 1, columns))
            self._y = y.view(blocks, rows // blocks, 1)
            self._bias = None if self._bias is None else self._bias.view(blocks, rows // blocks, 1)

    def __call__(self) -> None:
        y, bias = self._y, self._bias
        if self._add and bias is not None:
            y.add_(bias)
        if self._whole:
            if self._add:
                y.addmv_(self._weight, self._x)
            elif bias is not None:
                torch.addmv(bias, self._weight, self._x, out=y)
            else:
                torch.mv(self._weight, self._x, out=y)
        elif self._add:
            y.baddbmm_(self._weight, self._x)
        elif bias is not None:
            torch.baddbmm(bias, self._weight, self._x, out=y)
        else:
            torch.bmm(self._weight, self._x, out=y)


class Called:
    """As `MatVec`, for a module that is no plain `nn.Linear` or carries hooks: it is called as it stands."""

    def __init__(self, module: nn.Module, x: Tensor, y: Tensor, *, add: bool = False) -> None:
        self._module = module
        self._x = x.view(1, 1, -1)
        self._y = y.view(1, 1, -1)
        self._add = add

    def __call__(self) -> None:
        result = self._module(self._x)
        if self._add:
            self._y.add_(result)
        else:
            self._y.copy_(result)


def matvecs(modules: Sequence[nn.Module], x: Tensor, y: Tensor, *, add: bool = False) -> list[Callable[[], None]]:
    """The products of several linear modules on the same `x`, their results side by side in `y`.

    A module that is not plain is asked for its own `token_product(x, y, add=...)`, which packed modules have; any
    other, and any with hooks, is called. Modules of one class that has `token_products` are first asked for one
    product of all; it gives None where it has none.
    """
    together = getattr(modules[0], "token_products", None)
    if together is not None and not any(type(m) is not type(modules[0]) or has_hooks(m) for m in modules):
        fused: list[Callable[[], None]] | None = together(modules, x, y, add=add)
        if fused is not None:
            return fused
    products: list[Callable[[], None]] = []
    start = 0
    for module in modules:
        rows = out_features(module)
        part = y[start : start + rows]
        start += rows
        if is_plain(module):
            bias = module.bias
            products.append(MatVec(_weight(module), bias if isinstance(bias, Tensor) else None, x, part, add=add))
        else:
            own = None if has_hooks(module) else getattr(module, "token_product", None)
            products.append(Called(module, x, part, add=add) if own is None else own(x, part, add=add))
    return products


def out_features(module: nn.Module) -> int:
    """Rows of a linear module's result."""
    return int(module.out_features)  # type: ignore[arg-type]


def _weight(module: nn.Module) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)  # noqa: S101 - a plain nn.Linear has one
    return weight


def _blocks(weight: Tensor) -> int:
    rows, columns = weight.shape
    if weight.device.type != "cpu" or not weight.is_contiguous():
        return 1
    if torch.get_num_threads() == 1 and columns >= LONG_ROW:
        return 1
    blocks = BLOCKS
    while blocks > 1 and (rows % blocks or rows // blocks < 8):
        blocks //= 2
    return blocks
