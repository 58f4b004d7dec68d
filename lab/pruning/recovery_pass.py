"""What recovery trains: kept weights side by side, the matrices they are written to, the way through the model."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping, Sequence
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
        gradient: (kept,) fp32: theirs, once `collect` has gathered it.
    """

    def __init__(self, module: nn.Module, mask: Tensor) -> None:
        weight: Any = module.weight
        self._mask = (mask.t() if type(module).__name__ == "Conv1D" else mask).contiguous().to(weight.device)
        self.weight = nn.Parameter(weight.detach().clone(), requires_grad=True)
        module.weight = self.weight
        self.kept = self.weight.detach()[self._mask].float()
        self.gradient = torch.zeros(0)

    def collect(self) -> Tensor:
        """Gather the gradient of the kept weights, zeros where none came, and let the matrix's own go."""
        grad = self.weight.grad
        self.gradient = torch.zeros_like(self.kept) if grad is None else grad[self._mask].float()
        self.weight.grad = None
        return self.gradient

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
        matrices: in the order of the layers; there once `taking` has ended.

    Raises:
        BadInput, ModelError: see `lab.pruning.recovery.Recovery`.
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
        self._masks: list[tuple[str, Tensor, int]] = []
        self._trained: list[str] = []
        self.matrices: list[MaskedMatrix] = []
        self.lowest = len(self._layers)
        for name, mask in masks.items():
            inside = name.startswith(f"{prefix}.")
            index = int(name.removeprefix(f"{prefix}.").partition(".")[0]) if inside else -1
            if index in wanted:
                self._masks.append((name, mask, index))
                self.lowest = min(self.lowest, index)
        if not self._masks:
            raise BadInput(
                "There is nothing to train: no mask lies in the chosen decoder layers.", remedy="Choose more layers."
            )

    def taking(self) -> Generator[None, None, None]:
        """Check the masks and copy what is trained, a matrix at a time.

        Raises:
            NotFound: a name that is no linear module.
            BadInput: a mask that does not fit its matrix or its zeros.
        """
        for name, mask, _ in self._masks:
            module = linear_module(self._shell, name)
            _check_mask(name, out_in(module), mask)
            yield
            self._trained.append(name)
            self.matrices.append(MaskedMatrix(module, mask))
            yield

    def gradient_norm(self) -> Generator[None, None, float]:
        """The 2-norm over all kept weights, whose gradients are collected for it, a matrix at a time."""
        total = 0.0
        for one in self.matrices:
            with torch.no_grad():
                total += float(one.collect().square().sum(dtype=torch.float64))
            yield
        return math.sqrt(total)

    def forget_gradients(self) -> None:
        """Before a batch."""
        for one in self.matrices:
            one.weight.grad = None

    def shell_with(self, kept: Sequence[Tensor]) -> Generator[None, None, nn.Module]:
        """A shell with these kept weights in matrices of its own, a matrix at a time."""
        shell = make_shell(self._shell)
        for name, matrix, values in zip(self._trained, self.matrices, kept, strict=True):
            with torch.no_grad():
                linear_module(shell, name).weight = matrix.filled(values)
            yield
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
