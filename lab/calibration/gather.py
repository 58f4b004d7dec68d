"""Calibration: token windows through a model, and what they send into its linear layers.

Two ways, named wherever one is chosen:

- "one_shot": the inputs are those of the dense model (AWQ's way).
- "sequential": a layer's inputs are those that the layers before it give once they are quantized (GPTQ's way). Only
  what changes the model in between can do it: `lab.calibration.layerwise`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Literal

import torch
from torch import nn

from lab.calibration.hessian import Watch
from lab.calibration.inputs import LayerInputs
from lab.calibration.walk import LayerWalk
from lab.errors import BadInput, shown
from lab.models.linear import linear_module, output_head
from lab.models.shell import make_shell

Calibration = Literal["one_shot", "sequential"]
CALIBRATIONS: tuple[Calibration, ...] = ("one_shot", "sequential")
LEAST_TOKENS = 2
KEEP = 256
"""Inputs of a layer that are kept to measure output errors on."""

Calibrating = Generator[float, None, dict[str, LayerInputs]]


def calibrating(
    model: nn.Module,
    windows: Sequence[Sequence[int]],
    names: Collection[str],
    *,
    hessian: bool = True,
    keep: int = KEEP,
) -> Calibrating:
    """What `windows` send into the modules `names` of the dense model ("one_shot"). Yields the share done.

    It pauses after each step of about 512 positions through one decoder layer, and stops after the last layer that
    has a name in it. The Hessians of all named modules are held: take few names, or a whole model through
    `lab.quantization.whole_model`. Modules that read the same tensor share one `LayerInputs`.

    Args:
        model: not changed; the passes run on a shell.
        windows: token ids; each window is read alone from position 0, without padding. Up to some 1000 ids each keep
            the pauses close.
        names: linear modules inside the decoder layers, or the output head.
        hessian: whether to gather Hessians.
        keep: inputs of each module to keep, at most.

    Raises:
        NotFound: a name that is no linear module.
        BadInput: fewer than two tokens, or windows that cannot be read.
        ModelError: a model without decoder layers to walk through, or a module outside them.
    """
    check_calibration(windows)
    shell = make_shell(model)
    modules = {name: linear_module(shell, name) for name in names}
    walk = LayerWalk(shell, windows)
    per_layer = [
        {name: module for name, module in modules.items() if name.startswith(layer + ".")} for layer in walk.names
    ]
    outside = {name: m for name, m in modules.items() if not any(name in inside for inside in per_layer)}
    head = next(iter(outside), None)
    if len(outside) > 1 or (head is not None and outside[head] is not output_head(shell)):
        raise BadInput(
            f"{shown(head)} lies outside the decoder layers and is not the output head.",
            remedy="Choose modules of the decoder layers.",
        )
    last = len(walk.layers) if outside else max((i for i, inside in enumerate(per_layer) if inside), default=-1) + 1
    found: dict[str, LayerInputs] = {}
    steps = last + 1 + bool(outside)
    yield from _shares(walk.embed(), 0, steps)
    for index in range(last):
        inside = per_layer[index]
        watch = Watch(inside, hessian=hessian, expected=walk.tokens, keep=keep) if inside else None
        yield from _shares(walk.through(index, watch=watch), index + 1, steps)
        found.update(watch.results() if watch else {})
    if outside:
        watch = Watch(outside, hessian=hessian, expected=walk.tokens, keep=keep)
        yield from _shares(head_inputs(walk, watch, next(iter(outside.values()))), steps - 1, steps)
        found.update(watch.results())
    return {name: found[name] for name in modules}


def head_inputs(walk: LayerWalk, watch: Watch, head: nn.Module) -> Generator[None, None, None]:
    """Show `watch` what the head would read, without computing its logits. The walk must be through all layers."""
    for number in range(len(walk.hidden)):
        inputs = walk.after_norm(number)
        with torch.no_grad():
            watch.show(head, inputs)
        yield


def check_calibration(windows: Sequence[Sequence[int]]) -> None:
    """Refuse a calibration text that says nothing.

    Raises:
        BadInput: fewer than two tokens.
    """
    tokens = sum(len(window) for window in windows)
    if tokens < LEAST_TOKENS:
        raise BadInput(
            f"Calibration on {tokens} token{'' if tokens == 1 else 's'} says nothing; at least {LEAST_TOKENS} are "
            "needed, and some thousands are usual.",
            remedy="Give a longer calibration text.",
        )


def _shares(steps: Generator[None, None, None], number: int, of: int) -> Generator[float, None, None]:
    for _ in steps:
        yield number / of
