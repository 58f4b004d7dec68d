"""The linear modules of a model, Conv1Ds of GPT-2 among them, and its decoder layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lab.errors import BadInput, ModelError, NotFound, shown


def is_linear(module: nn.Module) -> bool:
    """Whether it is a plain `nn.Linear` or the Conv1D of GPT-2."""
    return type(module) is nn.Linear or type(module).__name__ == "Conv1D"


def in_features(module: nn.Module) -> int:
    """The inputs of a linear module or a Conv1D, whose weight is (in, out)."""
    weight: Any = module.weight
    return int(weight.shape[0] if type(module).__name__ == "Conv1D" else weight.shape[1])


def out_in(module: nn.Module) -> Tensor:
    """The weight of a linear module or a Conv1D as (out, in): the tensor itself or a transposed view."""
    weight: Any = module.weight
    found: Tensor = weight.detach()
    return found.t() if type(module).__name__ == "Conv1D" else found


def linear_module(model: nn.Module, name: str) -> nn.Module:
    """The linear module or Conv1D `name`.

    Raises:
        NotFound: there is none.
    """
    module: nn.Module | None = dict(model.named_modules()).get(name)
    if module is None or not is_linear(module):
        what = "no module" if module is None else f"a {type(module).__name__}, no linear module"
        raise NotFound(f"{shown(name)} is {what} of {type(model).__name__}.", remedy="Name a linear module.")
    return module


def output_head(model: nn.Module) -> nn.Module | None:
    """The module that gives the logits, if the model says which."""
    getter = getattr(model, "get_output_embeddings", None)
    head = getter() if getter is not None else None
    return head if isinstance(head, nn.Module) else None


def linear_names(model: nn.Module, *, head: bool) -> tuple[str, ...]:
    """The linear modules and Conv1Ds of a model; the output head only if asked for."""
    output = output_head(model)
    return tuple(name for name, module in model.named_modules() if is_linear(module) and (head or module is not output))


def decoder_layers(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """The name and the list of a model's decoder layers: the largest list of as many modules as its config says.

    Raises:
        ModelError: there is none.
    """
    config: Any = getattr(model, "config", None)
    count = config.get_text_config().num_hidden_layers if config is not None else 0
    found = [
        (sum(p.numel() for p in module.parameters()), name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    if not found:
        raise ModelError(
            f"No list of {count} decoder layers was found in {type(model).__name__}.",
            remedy="Choose a method that needs no calibration.",
        )
    _, name, module = max(found, key=lambda one: one[0])
    return name, module


def set_weight(module: nn.Module, values: Tensor) -> None:
    """Give a shell's module its own weight, (out, in) `values` in the dtype and layout of the one it had."""
    weight: Any = module.weight
    turned = values.t().contiguous() if type(module).__name__ == "Conv1D" else values
    module.weight = nn.Parameter(turned.to(weight.dtype), requires_grad=False)


def say_untied(shell: nn.Module) -> None:
    """So that nothing ties the head again: the shell's config is its own."""
    config: Any = getattr(shell, "config", None)
    parts: tuple[Any, ...] = () if config is None else (config, config.get_text_config())
    for part in parts:
        if getattr(part, "tie_word_embeddings", False):
            part.tie_word_embeddings = False


def check_weight(weight: Tensor, name: str = "The matrix") -> None:
    """Refuse what is no weight matrix to work on.

    Raises:
        BadInput: not a matrix of finite numbers in fp32's range, or an empty one; the first bad place is named.
    """
    if weight.dim() != 2 or not weight.dtype.is_floating_point or not weight.numel():
        raise BadInput(
            f"{name} is no matrix of floating numbers but {tuple(weight.shape)} {weight.dtype}.",
            remedy="Give weights of shape (out, in).",
        )
    # A sum is finite only if all are, or by overflow; so only a suspect is looked at closely.
    if torch.isfinite(weight.sum(dtype=torch.float32)):
        return
    bad = ~torch.isfinite(weight.float())
    if bool(bad.any()):
        row, column = (int(i) for i in bad.nonzero()[0])
        raise BadInput(
            f"{name} has {int(bad.sum()):,} weights that are not finite; the first is {weight[row, column].item()} at "
            f"row {row}, column {column}.",
            remedy="Use a model whose weights are finite.",
        )
