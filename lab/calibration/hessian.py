"""What text sends into linear layers, gathered by hooks: Hessians, mean magnitudes and squares, some of the inputs.

Modules that are handed the same tensor (query, key and value; gate and up) share one accumulator: their Hessian is
computed and held once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lab.calibration.inputs import LayerInputs
from lab.models.linear import in_features

PIECE = 512
"""Columns of a Hessian's piece: of a symmetric matrix only the pieces on and above the diagonal are computed."""


class Accumulator:
    """Sums over the inputs of one layer.

    Args:
        hessian: whether to sum 2 x x^T.
        expected: positions that will come, so that the kept ones are spread evenly over them.
        keep: inputs to keep, at most.
    """

    def __init__(self, *, hessian: bool, expected: int, keep: int) -> None:
        self._wants_hessian, self._expected, self._keep = hessian, max(expected, 1), min(keep, expected)
        self.tokens = 0
        self._hessian: Tensor | None = None
        self._sum_abs: Tensor | None = None
        self._sum_square: Tensor | None = None
        self._rows: list[Tensor] = []

    def add(self, x: Tensor) -> None:
        """Take the inputs of some positions, (..., in). Must run without gradients."""
        x = x.detach().reshape(-1, x.shape[-1]).float()
        if self._sum_abs is None or self._sum_square is None:
            self._sum_abs, self._sum_square = torch.zeros(2, x.shape[1], device=x.device)
            if self._wants_hessian:
                self._hessian = torch.zeros(x.shape[1], x.shape[1], device=x.device)
        self._sum_abs += x.abs().sum(dim=0)
        self._sum_square += x.square().sum(dim=0)
        if self._hessian is not None:
            add_outer(self._hessian, x)
        start, stop = self.tokens, self.tokens + x.shape[0]
        if self._keep:
            # The i-th kept position is floor(i expected / keep): ceil gives the first i at or after a position.
            first, last = (-(-bound * self._keep // self._expected) for bound in (start, stop))
            wanted = [i * self._expected // self._keep - start for i in range(first, min(last, self._keep))]
            if wanted:
                self._rows.append(x[wanted])
        self.tokens = stop

    def result(self, width: int, device: torch.device) -> LayerInputs:
        """The means. `width` and `device` count only where nothing ever came (an expert that no token took)."""
        if self._sum_abs is None or self._sum_square is None:
            empty = torch.zeros(width, width, device=device) if self._wants_hessian else None
            nothing = torch.zeros(width, device=device)
            return LayerInputs(0, empty, nothing, nothing.clone(), torch.zeros(0, width, device=device))
        hessian = None if self._hessian is None else mirrored(self._hessian).mul_(2.0 / self.tokens)
        rows = torch.cat(self._rows) if self._rows else self._sum_abs.new_zeros(0, self._sum_abs.shape[0])
        return LayerInputs(self.tokens, hessian, self._sum_abs / self.tokens, self._sum_square / self.tokens, rows)


def add_outer(total: Tensor, x: Tensor) -> None:
    """Add sum over rows of x x^T to the upper pieces of `total`; `mirrored` completes it.

    Args:
        total: (in, in) fp32, changed.
        x: (rows, in) fp32.
    """
    width = x.shape[1]
    for low in range(0, width, PIECE):
        high = min(low + PIECE, width)
        total[low:high, low:].addmm_(x[:, low:high].t(), x[:, low:])


def mirrored(total: Tensor) -> Tensor:
    """`total` with its lower part copied from the upper: exactly symmetric, in place."""
    width = total.shape[0]
    for low in range(0, width, PIECE):
        high = min(low + PIECE, width)
        square = total[low:high, low:high]
        square.copy_((square + square.t()) / 2)
        total[high:, low:high] = total[low:high, high:].t()
    return total


class Watch:
    """Gathers what is sent into some modules.

    Args:
        modules: name to module, each with a 2-D weight whose inputs come as the first argument.
        hessian: the names of which the Hessian is wanted; True for all.
        expected: positions that will come.
        keep: inputs to keep, at most.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], *, hessian: bool | frozenset[str], expected: int, keep: int
    ) -> None:
        self._modules = dict(modules)
        self._hessian, self._expected, self._keep = hessian, expected, keep
        self._leader: dict[str, str] = {}
        self._sums: dict[str, Accumulator] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hooks on the modules while some inputs run through. Nothing may be yielded to a scheduler inside."""
        seen: list[tuple[Tensor, str]] = []
        handles = [m.register_forward_pre_hook(self._hook(name, seen)) for name, m in self._modules.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def show(self, module: nn.Module, x: Tensor) -> None:
        """Take `x` as an input of `module` without running it."""
        name = next(name for name, one in self._modules.items() if one is module)
        self._leader[name] = name
        self._sums.setdefault(name, self._new(name)).add(x)

    def results(self) -> dict[str, LayerInputs]:
        """By name; modules that were handed the same tensors have the same object."""
        found: dict[str, LayerInputs] = {}
        for name, module in self._modules.items():
            leader = self._leader.setdefault(name, name)
            if leader not in found:
                sums = self._sums.get(leader) or self._new(leader)
                weight = module.weight
                width = in_features(module)
                found[leader] = sums.result(width, weight.device if isinstance(weight, Tensor) else torch.device("cpu"))
            found[name] = found[leader]
        return {name: found[name] for name in self._modules}

    def _new(self, leader: str) -> Accumulator:
        wanted = self._hessian
        return Accumulator(
            hessian=wanted if isinstance(wanted, bool) else leader in wanted, expected=self._expected, keep=self._keep
        )

    def _hook(self, name: str, seen: list[tuple[Tensor, str]]) -> Any:
        def listen(module: nn.Module, args: tuple[Any, ...]) -> None:
            del module
            x = args[0]
            # The tensors are held while they are compared: else another might lie where one was.
            leader = self._leader.get(name)
            if leader is None:
                leader = next((first for tensor, first in seen if tensor is x and self._alike(first, name)), name)
                self._leader[name] = leader
            if leader == name:
                seen.append((x, name))
                self._sums.setdefault(name, self._new(name)).add(x)

        return listen

    def _alike(self, first: str, second: str) -> bool:
        return isinstance(self._hessian, bool) or (first in self._hessian) == (second in self._hessian)
