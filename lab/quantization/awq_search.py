"""AWQ on a decoder layer: one scale for the matrices that read one input, judged by the block's output, then folded.

1/s goes into what stands before, where the layer stays the same function:

- the norm before query, key and value; the norm before gate and up; the rows of up before down.
- value before output only if every query head has a value head of its own. Under grouped queries one value row feeds
  several columns of the output matrix, whose scales differ: there is nothing to fold into, and none is searched.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lab.calibration.inputs import LayerInputs
from lab.quantization.awq import RATIOS, channel_scales, protected, rounded
from lab.quantization.grid import Grid

SEARCH_TOKENS = 512
"""Positions on which a block's output is compared."""

FOLD_TOLERANCE = 1e-3
"""Of a layer's output, relative to its largest value: a folded layer that differs by more is taken back."""


@dataclass(frozen=True)
class Block:
    """Matrices that read one input.

    Attributes:
        names: of the modules, inside the layer.
        parent: the module whose output is compared.
        before: what 1/s is folded into.
        reason: why there is no scale, "" if there is one.
    """

    names: tuple[str, ...]
    parent: str
    before: str
    reason: str = ""


@dataclass(frozen=True)
class ScaleSearch:
    """What the search found for one block.

    Attributes:
        modules: whole names.
        parent: whole name of the module whose output was compared.
        folded_into: whole name of the module that took 1/s; "" for none.
        reason: why not, "" if it was folded.
        ratios: r tried; empty where nothing was searched.
        errors: of each, the mean square error of the parent's output over its mean square.
        best: the index of the best.
        scales: (in,) fp32, or None.
        protected: the channels with the largest scales, largest first.
    """

    modules: tuple[str, ...]
    parent: str
    folded_into: str = ""
    reason: str = ""
    ratios: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    best: int = 0
    scales: Tensor | None = None
    protected: tuple[int, ...] = ()


Call = tuple[tuple[Any, ...], dict[str, Any]]


def blocks_of(layer: nn.Module) -> tuple[Block, ...]:
    """The blocks of a Llama-like layer; empty for a layer that is built otherwise."""
    wanted = ("input_layernorm", "post_attention_layernorm", "self_attn", "mlp")
    attention, mlp = getattr(layer, "self_attn", None), getattr(layer, "mlp", None)
    linears = [getattr(attention, f"{p}_proj", None) for p in "qkvo"]
    linears += [getattr(mlp, f"{p}_proj", None) for p in ("gate", "up", "down")]
    norms = [type(getattr(layer, name, None)).__name__ for name in wanted[:2]]
    if (
        any(type(linear) is not nn.Linear for linear in linears)
        or not all(norm.endswith("RMSNorm") and "Gemma" not in norm for norm in norms)
        or {name for name, _ in layer.named_children()} != set(wanted)
    ):
        return ()
    value, output = linears[2], linears[3]
    assert isinstance(value, nn.Linear)  # noqa: S101 - just seen
    assert isinstance(output, nn.Linear)  # noqa: S101
    shared = ""
    if value.out_features != output.in_features:
        times = output.in_features / value.out_features
        shared = (
            f"A value row feeds {times:g} columns of the output matrix (grouped queries), whose scales differ: there "
            "is nothing to fold them into."
        )
    attn = "self_attn."
    return (
        Block((attn + "q_proj", attn + "k_proj", attn + "v_proj"), "self_attn", "input_layernorm"),
        Block((attn + "o_proj",), attn + "o_proj", attn + "v_proj", shared),
        Block(("mlp.gate_proj", "mlp.up_proj"), "mlp", "post_attention_layernorm"),
        Block(("mlp.down_proj",), "mlp.down_proj", "mlp.up_proj"),
    )


def searching(
    layer: nn.Module,
    name: str,
    block: Block,
    grids: Mapping[str, Grid],
    inputs: LayerInputs,
    calls: Sequence[Call],
) -> Generator[None, None, ScaleSearch]:
    """The scale of one block; pauses after each r. The layer is as before at each pause.

    Args:
        layer: a shell's decoder layer.
        name: of the layer.
        grids: of the block's modules, by whole name.
        inputs: what they read.
        calls: the arguments of some calls of the parent.
    """
    modules = {f"{name}.{part}": layer.get_submodule(part) for part in block.names}
    parent = f"{name}.{block.parent}"
    if block.reason:
        return ScaleSearch(tuple(modules), parent, reason=block.reason)
    outputs = _outputs(layer.get_submodule(block.parent), calls)
    square = sum(float(output.double().square().sum()) for output in outputs)
    yield
    errors = []
    for ratio in RATIOS:
        scales = channel_scales(inputs.mean_abs, ratio)
        with torch.no_grad():
            changed = {
                part: rounded(module.weight.detach().float() * scales, grids[part]) / scales
                for part, module in modules.items()
                if isinstance(module.weight, Tensor)
            }
        errors.append(_error(layer.get_submodule(block.parent), modules, changed, calls, outputs) / max(square, 1e-30))
        yield
    best = min(range(len(errors)), key=errors.__getitem__)
    scales = channel_scales(inputs.mean_abs, RATIOS[best])
    return ScaleSearch(
        tuple(modules), parent, f"{name}.{block.before}", "", RATIOS, tuple(errors), best, scales, protected(scales)
    )


def fold(layer: nn.Module, block: Block, scales: Tensor) -> None:
    """Multiply a block's columns by `scales` and divide what stands before. The modules get tensors of their own."""
    with torch.no_grad():
        for part in block.names:
            module = layer.get_submodule(part)
            _set(module, "weight", _get(module, "weight").float() * scales)
        before = layer.get_submodule(block.before)
        weight = _get(before, "weight").float()
        _set(before, "weight", weight / (scales if weight.dim() == 1 else scales[:, None]))
        if getattr(before, "bias", None) is not None:
            _set(before, "bias", _get(before, "bias").float() / scales)


def _get(module: nn.Module, name: str) -> Tensor:
    found: Any = getattr(module, name)
    tensor: Tensor = found.detach()
    return tensor


def _set(module: nn.Module, name: str, values: Tensor) -> None:
    setattr(module, name, nn.Parameter(values.to(_get(module, name).dtype), requires_grad=False))


def _outputs(parent: nn.Module, calls: Sequence[Call]) -> list[Tensor]:
    found = []
    with torch.no_grad():
        for args, kwargs in calls:
            output: Any = parent(*args, **kwargs)
            found.append((output[0] if isinstance(output, tuple) else output).float())
    return found


def _error(
    parent: nn.Module,
    modules: Mapping[str, nn.Module],
    changed: Mapping[str, Tensor],
    calls: Sequence[Call],
    outputs: Sequence[Tensor],
) -> float:
    """The sum of squares of what the parent's output changes by, with other weights for a moment."""
    before = {name: module.weight for name, module in modules.items()}
    try:
        for name, weight in changed.items():
            _set(modules[name], "weight", weight)
        now = _outputs(parent, calls)
    finally:
        for name, module in modules.items():
            module.weight = before[name]
    return sum(float((a - b).double().square().sum()) for a, b in zip(now, outputs, strict=True))
