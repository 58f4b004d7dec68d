"""One token through several int8 matrices that read the same input, as one call of torch's weight-only kernel.

The matrices' codes are moved one below the other into one tensor, of which each keeps its rows as a view: nothing is
held twice. Inputs and results are bf16, as that kernel has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lab.quantization.packed.int8 import Int8Weight


class JoinedKernel:
    """Int8 matrices, one below the other. Not changed once made.

    Args:
        weights: (out, in) each, with one `in`.

    Attributes:
        weights: the same matrices, as views of the joined one: to be used instead of those given.
        resident_bytes: taken beside the matrices' own: none.
    """

    resident_bytes = 0

    def __init__(self, weights: Sequence[Int8Weight]) -> None:
        if len(weights) == 1:
            self._whole = weights[0]
            self.weights = tuple(weights)
            return
        self._whole = Int8Weight(torch.cat([w.codes for w in weights]), torch.cat([w.scales for w in weights]))
        sizes = [w.shape[0] for w in weights]
        parts = zip(torch.split(self._whole.codes, sizes), torch.split(self._whole.scales, sizes), strict=True)
        self.weights = tuple(Int8Weight(codes, scales) for codes, scales in parts)

    def __deepcopy__(self, memo: dict[int, Any]) -> JoinedKernel:
        return self  # shells share it as they share tensors

    def product(self, x: Tensor, y: Tensor, *, add: bool) -> Callable[[], None]:
        """y = W' x, or y += W' x, from one fixed buffer into another.

        Args:
            x: (in,) contiguous, read at each call.
            y: (out,) contiguous, written at each call.
            add: add to `y` instead of overwriting it.
        """
        across, row, whole = x.view(1, -1), y.view(1, -1), self._whole
        rounded = across if x.dtype == torch.bfloat16 else torch.empty(across.shape, dtype=torch.bfloat16)
        write = row.add_ if add else row.copy_

        def multiply() -> None:
            if rounded is not across:
                rounded.copy_(across)
            write(whole.multiply(rounded))

        return multiply
