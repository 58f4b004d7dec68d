"""One token's low-rank updates, between the fixed buffers of the fast path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lab.lora.attach import LoraLinear


class TokenUpdate:
    """y += factor s B (A x) for modules that read the same x, their results side by side in y.

    Their A's are stacked, so that x is read by one product for all. What is active, and how much of it, is read at each
    call; stacks are made when an adapter is first used.

    Args:
        modules: of one shell.
        x: (in,) contiguous, read at each call.
        y: (out of all,) contiguous, added to at each call.
    """

    def __init__(self, modules: Sequence[LoraLinear], x: Tensor, y: Tensor) -> None:
        self._modules, self._x = modules, x
        self._control = modules[0].control
        self._y = torch.split(y, [module.out_features for module in modules])
        self._exact = x.dtype == torch.float32
        self._version = -1
        self._stacks: dict[str, _Stack | None] = {}

    def __call__(self) -> None:
        control = self._control
        name, factor = control.active, control.factor
        if name is None or not factor:
            return
        if self._version != control.version:
            self._stacks.clear()
            self._version = control.version
        if name not in self._stacks:
            self._stacks[name] = self._stack(name)
        stack = self._stacks[name]
        if stack is None:
            return
        inner = torch.mv(stack.a, self._x if self._exact else self._x.float())
        for index, b, scale, part in stack.parts:
            y = self._y[index]
            if self._exact:
                y.addmv_(b, inner[part], alpha=scale * factor)
            else:
                y.copy_(torch.addmv(y.float(), b, inner[part], alpha=scale * factor))

    def _stack(self, name: str) -> _Stack | None:
        rows: list[Tensor] = []
        parts: list[tuple[int, Tensor, float, slice]] = []
        start = 0
        for index, module in enumerate(self._modules):
            pair = module.pairs.get(name)
            if pair is None or not pair[1]:
                continue
            (a, b), scale = pair
            parts.append((index, b.detach(), scale, slice(start, start + a.shape[0])))
            rows.append(a.detach())
            start += a.shape[0]
        return _Stack(torch.cat(rows) if len(rows) > 1 else rows[0], parts) if rows else None


class _Stack:
    def __init__(self, a: Tensor, parts: list[tuple[int, Tensor, float, slice]]) -> None:
        self.a, self.parts = a, parts
