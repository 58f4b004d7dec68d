"""The lesson's 2 x 2 example, computed by the code that adapts a model.

The worked example writes rows, y = x W + s (x A) B; modules hold the transposes of those matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lab.lora.adapter import Adapter, BaseFacts, Factors, LoraConfig
from lab.lora.attach import Attached
from lab.lora.merge import MergedShell
from lab.models.shell import make_shell

WEIGHT = ((1.0, 2.0), (3.0, 4.0))
A = ((1.0,), (0.0,))
B = ((0.5, 0.5),)
ALPHA = 2.0
X = (1.0, 1.0)

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class LoraExample:
    """Step by step, in the lesson's row convention.

    Attributes:
        scale: alpha / r.
        update: A B.
        merged: W' = W + s A B, read from the merged module.
        base_output: x W.
        inner: x A.
        added: s (x A) B.
        unmerged_output: of the module with the adapter on.
        merged_output: x W', of the merged module.
    """

    scale: float
    update: Matrix
    merged: Matrix
    base_output: tuple[float, ...]
    inner: tuple[float, ...]
    added: tuple[float, ...]
    unmerged_output: tuple[float, ...]
    merged_output: tuple[float, ...]


def lora_example(x: tuple[float, ...] = X, alpha: float = ALPHA, factor: float = 1.0) -> LoraExample:
    """The example for an input (2,), an alpha and a factor of the scale.

    >>> lora_example().merged_output
    (5.0, 7.0)
    """
    model = nn.ModuleDict({"layer": nn.Linear(2, 2, bias=False)}).requires_grad_(False)
    layer = model["layer"]
    layer.weight.copy_(torch.tensor(WEIGHT).t())  # type: ignore[operator]
    factors = Factors(torch.tensor(A).t().contiguous(), torch.tensor(B).t().contiguous())
    adapter = Adapter("example", LoraConfig(1, alpha, ("layer",)), {"layer": factors}, BaseFacts("", {"layer": (2, 2)}))
    row = torch.tensor(x)
    with torch.no_grad():
        base = layer(row)
        attached = Attached(make_shell(model), [adapter])
        with attached.using("example", factor) as shell:
            unmerged = shell.get_submodule("layer")(row)
        merging = MergedShell(make_shell(model))
        merging.merge(adapter, factor)
        changed = merging.shell.get_submodule("layer")
        return LoraExample(
            scale=adapter.config.scale,
            update=_rows((factors.b @ factors.a).t()),
            merged=_rows(changed.weight.t()),  # type: ignore[operator]
            base_output=_row(base),
            inner=_row(factors.a @ row),
            added=_row(unmerged - base),
            unmerged_output=_row(unmerged),
            merged_output=_row(changed(row)),
        )


def _row(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())


def _rows(values: Tensor) -> Matrix:
    return tuple(tuple(row) for row in values.tolist())
