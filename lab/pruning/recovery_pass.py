"""What recovery trains: kept weights side by side, the matrices they are written to, the way through the model."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lab.errors import BadInput, shown
from lab.lora.training_pass import TrainingPass
from lab.models.linear import decoder_layers, linear_module, out_in
from lab.models.shell import make_shell


class MaskedMatrix:
    """One matrix in training.

    Args:
        module: of a shell; its weight is replaced by one of its own.
        mask: (out, in) bool, True where a weight is kept.

    Attributes:
        kept: (kept,) fp32: the kept weights in the order of the weight's own layout; the optimizer changes them in
            place, `write` puts them into the matrix.
    """

    def __init__(self, module: nn.Module, mask: Tensor) -> None:
        weight: Any = module.weight
        self._mask = (mask.t() if type(module).__name__ == "Conv1D" else mask).contiguous().to(weight.device)
        self.weight = nn.Parameter(weight.detach().clone(), requires_grad=True)
        module.weight = self.weight
        self.kept = self.weight.detach()[self._mask].float()

    def gradient(self) -> Tensor:
        """(kept,) fp32: that of the kept weights; zeros where none came."""
        grad = self.weight.grad
        return torch.zeros_like(self.kept) if grad is None else grad[self._mask].float()

    def write(self) -> None:
        """Put the kept weights where the mask keeps them. Must run without gradients."""
        self.weight.masked_scatter_(self._mask, self.kept.to(self.weight.dtype))

    def filled(self, kept: Tensor) -> nn.Parameter:
        """A weight of its own with these kept weights, and zeros."""
        values = torch.zeros_like(self.weight).masked_scatter_(self._mask, kept.to(self.weight.dtype))
        return nn.Parameter(values, requires_grad=False)


class RecoveryPass(TrainingPass):
    """Forward and backward through a shell whose masked matrices are parameters.

    Args:
        model: not changed: what is trained is copied, all else is shared without gradients.
        masks: by module name.
        layers: indices of the decoder layers that are trained; None for all.

    Attributes:
        matrices: in the order of the layers.
        start: the kept weights before training.

    Raises:
        BadInput, NotFound, ModelError: see `lab.pruning.recovery.Recovery`.
    """

    def __init__(self, model: nn.Module, masks: Mapping[str, Tensor], layers: Sequence[int] | None) -> None:
        self._shell = make_shell(model)
        _without_gradients(self._shell)
        self._shell.train(False)
        prefix, stack = decoder_layers(self._shell)
        self._layers = list(stack)
        self._device = next(self._shell.parameters()).device
        self._base = getattr(self._shell, "base_model", self._shell)
        wanted = _wanted(len(self._layers), layers)
        self._trained: list[str] = []
        self.matrices: list[MaskedMatrix] = []
        self.lowest = len(self._layers)
        for name, mask in masks.items():
            module = linear_module(self._shell, name)
            inside = name.startswith(f"{prefix}.")
            index = int(name.removeprefix(f"{prefix}.").partition(".")[0]) if inside else -1
            _check_mask(name, out_in(module), mask)
            if index in wanted:
                self._trained.append(name)
                self.matrices.append(MaskedMatrix(module, mask))
                self.lowest = min(self.lowest, index)
        if not self.matrices:
            raise BadInput(
                "There is nothing to train: no mask lies in the chosen decoder layers.", remedy="Choose more layers."
            )
        self.start = [one.kept.clone() for one in self.matrices]

    def gradient_norm(self) -> float:
        """The 2-norm over all kept weights."""
        with torch.no_grad():
            return math.sqrt(sum(float(one.gradient().square().sum(dtype=torch.float64)) for one in self.matrices))

    def forget_gradients(self) -> None:
        """Before a batch."""
        for one in self.matrices:
            one.weight.grad = None

    def shell_with(self, kept: Sequence[Tensor]) -> nn.Module:
        """A shell with these kept weights in matrices of its own."""
        shell = make_shell(self._shell)
        with torch.no_grad():
            for name, matrix, values in zip(self._trained, self.matrices, kept, strict=True):
                linear_module(shell, name).weight = matrix.filled(values)
        return shell


def _without_gradients(shell: nn.Module) -> None:
    """Parameters of the shell's own over the shared tensors, so that no gradient reaches the shared model."""
    known: dict[int, nn.Parameter] = {}
    for module in shell.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            own = known.setdefault(id(parameter), nn.Parameter(parameter.detach(), requires_grad=False))
            setattr(module, name, own)


def _wanted(count: int, layers: Sequence[int] | None) -> Collection[int]:
    if layers is None:
        return range(count)
    wrong = [index for index in layers if not 0 <= index < count]
    if wrong or not layers:
        raise BadInput(
            f"There is no decoder layer {shown(wrong[0])}." if wrong else "No decoder layer was chosen.",
            remedy=f"Choose some of 0 to {count - 1}.",
        )
    return frozenset(layers)


def _check_mask(name: str, weight: Tensor, mask: Tensor) -> None:
    if mask.shape != weight.shape or mask.dtype != torch.bool:
        raise BadInput(
            f"{name}: a mask of {tuple(mask.shape)} {mask.dtype} does not fit a weight of {tuple(weight.shape)}.",
            remedy="Give (out, in) truth values, True where a weight is kept.",
        )
    alive = int((weight[~mask.to(weight.device)] != 0).sum())
    if alive:
        raise BadInput(
            f"{name}: {alive:,} weights that the mask prunes are not 0.", remedy="Give the pruned model and its masks."
        )
