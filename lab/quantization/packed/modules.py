"""A linear module whose weight is packed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from lab.steps import finished

PIECE_BYTES = 4 * 1024 * 1024
"""Of the fp32 scratch into which a packed matrix is widened for many rows."""
PIECES_A_SLICE = 8
"""Pieces between two pauses of a product of many rows: 8 million weights, some 70 ms of 33 rows on one core."""


class PackedWeight(Protocol):
    """A matrix as codes: `Int8Weight` or `Int4Weight`."""

    @property
    def bits(self) -> int:
        """A weight."""
        ...

    @property
    def few(self) -> int:
        """Rows up to which the kernel is taken."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        ...

    @property
    def bytes(self) -> int:
        """As a file holds it."""
        ...

    @property
    def resident_bytes(self) -> int:
        """As memory holds it."""
        ...

    def multiply(self, x: Tensor) -> Tensor:
        """(rows, in) bf16 to (rows, out) bf16."""
        ...

    def dense(self, start: int, stop: int) -> Tensor:
        """Some rows in fp32."""
        ...


class PackedLinear(nn.Module):
    """y = W' x + b with W' packed; takes and gives the model's dtype.

    A few rows go through the packed kernel, whose inputs are rounded to bf16 (with fp32 inputs torch's kernels take ten
    times as long). More rows are multiplied with the matrix widened piece by piece, their inputs rounded alike.

    Args:
        weight: the codes.
        bias: (out,) or None.
    """

    def __init__(self, weight: PackedWeight, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight_codes = weight
        self.bias_values = None if bias is None else bias.detach()
        self.out_features, self.in_features = weight.shape
        self.token_kernel: object | None = None  # for one token, made by `token.making_kernels`

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return finished(self.sliced(x))

    def sliced(self, x: Tensor) -> Generator[None, None, Tensor]:
        """The same as a call, pausing between parts of a large matrix where there are many rows."""
        rows = x.reshape(-1, self.in_features).bfloat16()
        weight = self.weight_codes
        if x.device.type == "cpu" and rows.shape[0] <= weight.few:
            product = weight.multiply(rows).to(x.dtype)
        else:
            product = yield from self._widened(rows, x.dtype)
        if self.bias_values is not None:
            product = product + self.bias_values
        return product.view(*x.shape[:-1], self.out_features)

    @staticmethod
    def token_products(
        modules: Sequence[PackedLinear], x: Tensor, y: Tensor, *, add: bool
    ) -> list[Callable[[], None]] | None:
        """One token through modules that read the same, from one fixed buffer into another: see `token`.

        None where the kernel cannot take it as it is: off the CPU, or with a bias.
        """
        if x.device.type != "cpu" or any(module.bias_values is not None for module in modules):
            return None
        from lab.quantization.packed.token import token_products

        return token_products(modules, x, y, add=add)

    def token_product(self, x: Tensor, y: Tensor, *, add: bool) -> Callable[[], None]:
        """One token from one fixed buffer into another.

        Args:
            x: (in,) contiguous, read at each call.
            y: (out,) contiguous, written at each call.
            add: add to `y` instead of overwriting it.
        """
        across, row = x.view(1, -1), y.view(1, -1)

        def product() -> None:
            if add:
                row.add_(self(across))
            else:
                row.copy_(self(across))

        return product

    def _widened(self, rows: Tensor, dtype: torch.dtype) -> Generator[None, None, Tensor]:
        weight, wide = self.weight_codes, rows.float()
        step = max(1, PIECE_BYTES // (4 * self.in_features))
        product = torch.empty(rows.shape[0], self.out_features, dtype=dtype, device=rows.device)
        for start in range(0, self.out_features, step):
            if start and start % (PIECES_A_SLICE * step) == 0:
                yield
            stop = min(start + step, self.out_features)
            product[:, start:stop].copy_(torch.mm(wide, weight.dense(start, stop).t()))
        return product

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bits={self.weight_codes.bits}"
