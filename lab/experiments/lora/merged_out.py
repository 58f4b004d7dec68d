"""The merged model written as a model of its own: off the base's quantization grid, for other experiments to take."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor

from lab import paths
from lab.errors import BadInput, shown
from lab.events.lora import MergedModel
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.progress import Made, shares
from lab.experiments.compared.targets import find_targets
from lab.experiments.lora.params import WRITING, LoraParams
from lab.experiments.lora.places import MOST_MERGED, merged_path
from lab.experiments.lora.setup import Setup
from lab.lora.adapter import Adapter
from lab.lora.merge import MergedShell
from lab.lora.merged_files import writing_merged
from lab.models.at_hand import trained_ids
from lab.models.cache_place import written_to_cache
from lab.models.grid import check_grid
from lab.models.linear import out_in
from lab.steps import relay

GROUP = 32
"""Weights of a row that share a scale in the file that the packaged model came from."""


def check_merged_out(params: LoraParams) -> None:
    """Refuse a name for the merged model before anything is computed.

    Raises:
        BadInput: it is taken, too many lie there, or the run merges wrongly on purpose or not at all.
    """
    name = params.merged_out
    if not name:
        return
    if params.task not in WRITING:
        raise BadInput(f"The task {params.task} writes no merged model.", remedy=f"Choose {' or '.join(WRITING)}.")
    if params.break_run != "nothing":
        raise BadInput(
            "A model that is merged wrongly on purpose is not written.",
            remedy="Break nothing, or leave merged_out out.",
        )
    if merged_path(name).exists():
        raise BadInput(f"There is a model {shown(name)} already.", remedy="Choose another name.")
    if len(trained_ids()) >= MOST_MERGED:
        raise BadInput(
            f"{MOST_MERGED} models were written here already; no more are kept.",
            remedy=f"Remove one from {paths.trained_location().name} in the lab's cache directory.",
        )


def write_merged(setup: Setup, merged: MergedShell, adapter: Adapter) -> Made[None]:
    """Write the merged model if the run is to, and tell how far off the 4-bit grid it is.

    Raises:
        BadInput: the name was taken meanwhile.
        LabError: the disk is full or fails; nothing of the model is left.
    """
    name, facts = setup.params.merged_out, merged.merged
    if not name or facts is None:
        return
    wrong = next((found for found in setup.findings if found.verdict == "different"), None)
    if wrong is not None:
        setup.findings.append(Finding(f"the merged model {name} is written", "different", wrong.words))
        return
    base = [out_in(setup.model.get_submodule(one)) for one in facts.modules]
    after = [out_in(merged.shell.get_submodule(one)) for one in facts.modules]
    checked, was = yield from _changed(base)
    _, now = yield from _changed(after)
    out = paths.trained_dir() / name
    with written_to_cache():
        size = yield from relay(writing_merged(out, setup.loaded, merged, adapter), shares("writing the merged model"))
    yield MergedModel(
        model=str(out),
        name=name,
        base=setup.loaded.facts.id,
        adapter=adapter.name,
        factor=facts.factor,
        bytes=size,
        matrices=len(facts.modules),
        others=len({target.name for target in find_targets(merged.shell)} - set(facts.modules)),
        projections=tuple(dict.fromkeys(one.rpartition(".")[2] for one in facts.modules)),
        checked=checked,
        base_changed=was,
        merged_changed=now,
    )


def _changed(weights: Iterable[Tensor]) -> Made[tuple[int, float]]:
    """How many weights were put on the grid, and the share of them that this changes."""
    count, changed = 0, 0.0
    for weight in weights:
        if weight.shape[1] % GROUP == 0:
            count += weight.numel()
            changed += check_grid(weight, GROUP).changed * weight.numel()
        yield None
    return count, changed / count if count else math.nan
