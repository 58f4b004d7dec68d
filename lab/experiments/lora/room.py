"""Whether what a run is to keep can be written, asked before anything is computed: a training takes minutes."""

from __future__ import annotations

from torch import nn

from lab import paths
from lab.experiments.lora.adapters import targets_of
from lab.experiments.lora.params import WRITING, LoraParams
from lab.lora.adapter import linear_shapes, lora_parameters, target_modules
from lab.models.cache_place import check_cache_place
from lab.models.disk import ROOM_BYTES, require_cache
from lab.models.writing import stored_once

BESIDE = 1 << 20
"""Bytes for an adapter's config and the header of its weights."""


def check_places(params: LoraParams) -> None:
    """Try the folders that adapter and merged model are to be kept in.

    Raises:
        BadInput: one of them cannot be made, or nothing can be made in it.
    """
    if _saves(params):
        check_cache_place(paths.adapters_dir(), params.save)
    if _merges(params):
        check_cache_place(paths.trained_dir(), params.merged_out)


def check_room(model: nn.Module, params: LoraParams) -> None:
    """Ask for the room that they will need.

    Args:
        model: the base.

    Raises:
        ModelError: there is less; both numbers and the folder are in the message.
        BadInput: see `targets_of`.
    """
    adapter = 0
    if _saves(params):
        adapter = adapter_bytes(model, params) + BESIDE
        require_cache(f"The adapter {params.save}", adapter, paths.adapters_dir())
    if _merges(params):
        merged = sum(tensor.nbytes for tensor in stored_once(model).values()) + ROOM_BYTES
        what = f"The merged model {params.merged_out}{f' with the adapter {params.save}' if adapter else ''}"
        require_cache(what, merged + adapter, paths.trained_dir())


def adapter_bytes(model: nn.Module, params: LoraParams) -> int:
    """Of the fp32 factors that a training makes: 4 r (in + out), added over the modules."""
    shapes = linear_shapes(model, target_modules(model, targets_of(model, params.targets)))
    return sum(4 * lora_parameters(rows, columns, params.rank)[0] for rows, columns in shapes.values())


def _saves(params: LoraParams) -> bool:
    return bool(params.save) and params.task == "train"


def _merges(params: LoraParams) -> bool:
    return bool(params.merged_out) and params.task in WRITING
