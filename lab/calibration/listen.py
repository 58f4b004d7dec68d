"""What text sends into linear modules, handed to a listener call by call; nothing is kept here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any

from torch import Tensor, nn

from lab.calibration.walk import LayerWalk
from lab.errors import BadInput, shown
from lab.models.linear import decoder_layers, is_linear, linear_module
from lab.models.shell import make_shell

Listening = Generator[float, None, None]


def listening(
    model: nn.Module,
    windows: Sequence[Sequence[int]],
    hear: Callable[[str, Tensor], None],
    names: Collection[str] | None = None,
) -> Listening:
    """Send token windows through the dense model's decoder layers; yields the share done after each short step.

    Args:
        model: not changed; hooks live on a shell.
        windows: token ids; each window is read alone from position 0. Windows of equal length go together.
        hear: called with a module's name and its inputs (..., in) at each call, without gradients; the tensor may be
            written over afterwards.
        names: linear modules inside the decoder layers; None: all of them.

    Raises:
        BadInput: no windows or ids outside the vocabulary, a module outside the decoder layers.
        NotFound: a name that is no linear module.
        ModelError: no decoder layers.
    """
    shell = make_shell(model)
    wanted = layer_modules(shell) if names is None else tuple(names)
    inside = set(layer_modules(shell))
    for name in wanted:
        module = linear_module(shell, name)
        if name not in inside:
            raise BadInput(f"{shown(name)} lies outside the decoder layers.", remedy="Choose a module inside them.")
        module.register_forward_pre_hook(_hook(name, hear))
    walk = LayerWalk(shell, windows)
    total = len(walk.layers) + 1
    for _ in walk.embed():
        yield 0.0
    for index in range(len(walk.layers)):
        for _ in walk.through(index):
            yield (index + 1) / total
    yield 1.0


def layer_modules(model: nn.Module) -> tuple[str, ...]:
    """Names of the linear modules inside the decoder layers, in the model's order."""
    prefix, layers = decoder_layers(model)
    return tuple(f"{prefix}.{name}" for name, module in layers.named_modules() if is_linear(module))


def _hook(name: str, hear: Callable[[str, Tensor], None]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
        del module
        hear(name, args[0].detach())

    return hook
