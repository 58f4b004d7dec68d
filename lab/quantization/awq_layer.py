"""AWQ's search on one decoder layer of a walk: each block in turn, scales folded, the layer checked to be the same."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from lab.calibration.inputs import LayerInputs
from lab.calibration.walk import LayerWalk
from lab.quantization.awq_search import (
    FOLD_TOLERANCE,
    SEARCH_TOKENS,
    Block,
    Call,
    ScaleSearch,
    blocks_of,
    fold,
    searching,
)
from lab.quantization.grid import Grid


@dataclass
class Folded:
    """What became of one layer.

    Attributes:
        searches: of each block that was searched, or says why not.
        columns: by whole name, (in,): what a module's columns are multiplied by now.
        rows: by whole name, (out,): what its rows are divided by now.
        modules: whole names of all modules that belong to a block.
    """

    searches: list[ScaleSearch] = field(default_factory=list)
    columns: dict[str, Tensor] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)


def folding(
    walk: LayerWalk, index: int, grids: Mapping[str, Grid], inputs: Mapping[str, LayerInputs]
) -> Generator[None, None, Folded]:
    """Search and fold the blocks of layer `index`, whose inputs `walk.hidden` holds; pauses after each ratio.

    A block is taken only if all of its modules are in `grids`. The layer's function is the same afterwards, to
    rounding; a fold that changes it is taken back and named.

    Args:
        grids: of the modules that AWQ quantizes, by whole name.
        inputs: what calibration sends into them.
    """
    layer, name = walk.layers[index], walk.names[index]
    blocks = [b for b in blocks_of(layer) if all(f"{name}.{part}" in grids for part in b.names)]
    done = Folded(modules={f"{name}.{part}" for block in blocks for part in block.names})
    calls = yield from _calls(walk, index, {block.parent for block in blocks if not block.reason})
    for block in blocks:
        search = yield from searching(
            layer, name, block, grids, inputs[f"{name}.{block.names[0]}"], calls.get(block.parent, ())
        )
        scales = search.scales
        if scales is not None and search.best > 0:
            reason = _fold_checked(walk, index, block, scales)
            if reason:
                search = replace(search, folded_into="", reason=reason, scales=None, protected=(), best=0)
            else:
                done.columns |= dict.fromkeys(search.modules, scales)
                done.rows[search.folded_into] = scales
            yield
        done.searches.append(search)
    return done


def _fold_checked(walk: LayerWalk, index: int, block: Block, scales: Tensor) -> str:
    """Fold; empty if the layer is the same function, else it is as before and the reason is given."""
    layer = walk.layers[index]
    touched = [layer.get_submodule(part) for part in (*block.names, block.before)]
    kept = [dict(module.named_parameters(recurse=False)) for module in touched]
    with torch.no_grad():
        before = walk.run(index, 0).float()
        fold(layer, block, scales)
        after = walk.run(index, 0).float()
    tolerance = FOLD_TOLERANCE if next(layer.parameters()).dtype == torch.float32 else 30 * FOLD_TOLERANCE
    off = float((after - before).abs().max() / before.abs().max().clamp(min=1e-30))
    if off <= tolerance:
        return ""
    for module, parameters in zip(touched, kept, strict=True):
        for parameter, value in parameters.items():
            setattr(module, parameter, value)
    return f"Folding changed the layer's output by {off:.1g} of its largest value, so it was taken back."


def _calls(walk: LayerWalk, index: int, parents: set[str]) -> Generator[None, None, dict[str, list[Call]]]:
    """The arguments with which the layer calls `parents`, of about `SEARCH_TOKENS` positions."""
    found: dict[str, list[Call]] = {parent: [] for parent in parents}
    layer, tokens = walk.layers[index], 0
    for batch, hidden in enumerate(walk.hidden if parents else ()):
        with torch.no_grad(), ExitStack() as hooks:
            for parent in parents:
                module = layer.get_submodule(parent)
                hooks.callback(module.register_forward_pre_hook(_keeper(found[parent]), with_kwargs=True).remove)
            walk.run(index, batch)
        tokens += hidden.shape[0] * hidden.shape[1]
        yield
        if tokens >= SEARCH_TOKENS:
            break
    return found


def _keeper(calls: list[Call]) -> Any:
    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        del module
        calls.append((args, kwargs))

    return keep
