"""What recovery trains: whole matrices whose pruned weights get no gradient, and the way through the model."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lab.errors import BadInput, shown
from lab.lora.adamw import AdamW
from lab.lora.training_pass import TrainingPass
from lab.models.linear import decoder_layers, linear_module, out_in
from lab.models.shell import make_shell


class MaskedMatrix:
    """One matrix in training.

    The optimizer sees it whole: a gradient of 0 leaves both means of a pruned weight 0, and 0 less a step of 0, decayed
    or not, is 0. That is one pass over memory that lies in order, where gathering the kept weights takes several.

    Args:
        module: of a shell; its weight is replaced by one of its own.
        mask: (out, in) bool, True where a weight is kept.

    Attributes:
        weight: in the model's dtype and layout; the optimizer's own is fp32.
        kept: how many weights the mask keeps.
    """

    def __init__(self, module: nn.Module, mask: Tensor, weight_decay: float) -> None:
        weight: Any = module.weight
        self._mask = (mask.t() if type(module).__name__ == "Conv1D" else mask).contiguous().to(weight.device)
        self.kept = int(self._mask.sum())
        self.weight = nn.Parameter(weight.detach().clone(), requires_grad=True)
        module.weight = self.weight
        self._values = self.weight.detach().float()  # of an fp32 model the weight itself
        self._optimizer = AdamW(self._values, weight_decay=weight_decay)
        self._best: Tensor | None = None

    def mask_gradient(self) -> float:
        """Make the gradient of pruned weights 0; the sum of the squares of the others. Must run without gradients."""
        if self.weight.grad is None:
            return 0.0
        self.weight.grad.mul_(self._mask)
        return float(torch.linalg.vector_norm(self.weight.grad, dtype=torch.float32)) ** 2

    def step(self, factor: float, rate: float) -> None:
        """A step down the masked gradient times `factor`; the gradient is let go. Must run without gradients."""
        grad = torch.zeros_like(self.weight) if self.weight.grad is None else self.weight.grad
        self.weight.grad = None
        self._optimizer.step(grad.float().mul_(factor), rate)
        if self._values.dtype != self.weight.dtype:
            self.weight.copy_(self._values)

    def keep(self) -> None:
        """What there is now is the best so far."""
        self._best = self.weight.detach().clone()

    @property
    def best(self) -> Tensor:
        """The best so far, or what it was before the first; later steps do not change it."""
        return self.weight.detach().clone() if self._best is None else self._best


class RecoveryPass(TrainingPass):
    """Forward and backward through a shell whose masked matrices are parameters.

    Args:
        model: not changed: what is trained is copied, all else is shared without gradients.
        masks: by module name.
        layers: indices of the decoder layers that are trained; None for all.

    Attributes:
        matrices: in the order of the layers; there once `taking` has ended.
        device: of the model.

    Raises:
        BadInput, ModelError: see `lab.pruning.recovery.Recovery`.
    """

    def __init__(self, model: nn.Module, masks: Mapping[str, Tensor], layers: Sequence[int] | None) -> None:
        self._shell = make_shell(model)
        _without_gradients(self._shell)
        self._shell.train(False)
        prefix, stack = decoder_layers(self._shell)
        self._layers = list(stack)
        self.device = self._device = next(self._shell.parameters()).device
        self._base = getattr(self._shell, "base_model", self._shell)
        wanted = _wanted(len(self._layers), layers)
        self._masks: list[tuple[str, Tensor]] = []
        self._trained: list[str] = []
        self.matrices: list[MaskedMatrix] = []
        self.lowest = len(self._layers)
        for name, mask in masks.items():
            inside = name.startswith(f"{prefix}.")
            index = int(name.removeprefix(f"{prefix}.").partition(".")[0]) if inside else -1
            if index in wanted:
                self._masks.append((name, mask))
                self.lowest = min(self.lowest, index)
        if not self._masks:
            raise BadInput(
                "There is nothing to train: no mask lies in the chosen decoder layers.", remedy="Choose more layers."
            )

    def taking(self, weight_decay: float) -> Generator[None, None, None]:
        """Check the masks and copy what is trained, a matrix at a time.

        Raises:
            NotFound: a name that is no linear module.
            BadInput: a mask that does not fit its matrix or its zeros.
        """
        for name, mask in self._masks:
            module = linear_module(self._shell, name)
            _check_mask(name, out_in(module), mask)
            yield
            self._trained.append(name)
            self.matrices.append(MaskedMatrix(module, mask, weight_decay))
            yield

    def gradient_norm(self) -> Generator[None, None, float]:
        """The 2-norm over all kept weights, whose gradients are masked for it, a matrix at a time."""
        total = 0.0
        for one in self.matrices:
            with torch.no_grad():
                total += one.mask_gradient()
            yield
        return math.sqrt(total)

    def forget_gradients(self) -> None:
        """Before a batch."""
        for one in self.matrices:
            one.weight.grad = None

    def best_shell(self) -> Generator[None, None, nn.Module]:
        """A shell with the best weights so far in matrices of its own, a matrix at a time."""
        shell = make_shell(self._shell)
        for name, matrix in zip(self._trained, self.matrices, strict=True):
            linear_module(shell, name).weight = nn.Parameter(matrix.best, requires_grad=False)
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
    alive = int((weight != 0).logical_and_(~mask.to(weight.device)).sum())
    if alive:
        raise BadInput(
            f"{name}: {alive:,} weights that the mask prunes are not 0.", remedy="Give the pruned model and its masks."
        )
