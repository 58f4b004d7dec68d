"""A model with its linear modules packed, as a shell: the shared model keeps its dense weights."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

from torch import nn
from transformers import PreTrainedModel

from lab.errors import BadInput, shown
from lab.models.shell import make_shell
from lab.quantization.packed.int4 import GROUP_SIZES, ROWS
from lab.quantization.packed.int8 import WIDTH
from lab.quantization.packed.modules import PackedLinear, PackedWeight
from lab.quantization.packed.sliced import packing_int4, packing_int8
from lab.quantization.packed.token import making_kernels
from lab.steps import finished

Bits = Literal[4, 8]
DEFAULT_GROUP = 32
"""Of int4 weights. 64 is as fast and half a bit smaller, but the default model's own grid has groups of 32."""


@dataclass(frozen=True)
class Packed:
    """A packed shell and what became of each linear module.

    Attributes:
        shell: the model with `PackedLinear` modules; all else is shared with the model it was made from.
        packed: names of the packed modules, in the model's order.
        skipped: (name, reason) of those left dense.
        bytes: of codes, scales and zero points of the packed modules, as a file holds them.
        resident_bytes: memory the packed modules take beside the model's own.
        dense_bytes: of the same modules' dense weights in the model's dtype.
    """

    shell: nn.Module
    packed: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    bytes: int
    resident_bytes: int
    dense_bytes: int


def packing(
    model: nn.Module, bits: Bits, *, group_size: int = DEFAULT_GROUP, head: bool = True
) -> Generator[None, None, Packed]:
    """As `pack_shell`, pausing after each module, and inside a large one."""
    if bits not in (4, 8):
        raise BadInput(f"There is no packed kernel for {shown(bits)} bits.", remedy="Choose 4 or 8.")
    shell = make_shell(model)
    output = shell.get_output_embeddings() if isinstance(shell, PreTrainedModel) else None  # type: ignore[no-untyped-call]
    packed: list[str] = []
    skipped: list[tuple[str, str]] = []
    weights: list[PackedWeight] = []
    dense_bytes = 0
    for name, module in list(shell.named_modules()):
        if not isinstance(module, nn.Linear):
            if type(module).__name__ == "Conv1D":
                skipped.append((name, "a Conv1D keeps its weight the other way round"))
            continue
        reason = "the head was asked to stay dense" if module is output and not head else _why_not(module, bits)
        if reason:
            skipped.append((name, reason))
            continue
        weight: PackedWeight
        if bits == 8:
            weight = yield from packing_int8(module.weight, name)
        else:
            weight = yield from packing_int4(module.weight, group_size, name)
        weights.append(weight)
        dense_bytes += module.weight.numel() * module.weight.element_size()
        shell.set_submodule(name, PackedLinear(weight, module.bias))
        packed.append(name)
        yield
    if not packed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:3])
        raise BadInput(f"No module could be packed to {bits} bits. {reasons}", remedy="Choose another model.")
    kernels = yield from making_kernels(shell)
    return Packed(
        shell,
        tuple(packed),
        tuple(skipped),
        sum(w.bytes for w in weights),
        sum(w.resident_bytes for w in weights) + kernels,
        dense_bytes,
    )


def pack_shell(model: nn.Module, bits: Bits, group_size: int = DEFAULT_GROUP, *, head: bool = True) -> Packed:
    """A shell of `model` whose plain linear modules are packed; `model` is not changed.

    A tied head becomes a packed matrix of its own; the embedding stays as it is.

    Args:
        bits: 4 or 8.
        group_size: weights that share a scale, of 4 bits only: 32, 64, 128 or 256.
        head: pack the output head too. It is read once a token like any other matrix, but its errors go straight
            into the logits.

    Raises:
        BadInput: no kernel for so many bits, a group size that does not divide the rows of a module (the sizes that
            do are named), weights that are not finite, or a model without a module that fits.
    """
    return finished(packing(model, bits, group_size=group_size, head=head))


def _why_not(module: nn.Linear, bits: int) -> str:
    """Empty if some setting of the kernel can take the module, else what is in the way."""
    if type(module) is not nn.Linear:
        return f"{type(module).__name__} is no plain nn.Linear"
    rows, columns = module.weight.shape
    if bits == 8:
        return f"its rows of {columns} weights are no multiple of {WIDTH}" if columns % WIDTH else ""
    if all(columns % size for size in GROUP_SIZES):
        return f"no group size divides its rows of {columns} weights"
    return f"its {rows} rows are no multiple of {ROWS}" if rows % ROWS else ""
