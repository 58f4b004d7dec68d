"""A packed model on disk: canonical codes and scales in safetensors files, and what is dense beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lab import paths
from lab.errors import LabError
from lab.experiments.compared.progress import Made
from lab.models.disk import require_disk
from lab.quantization.packed.int4 import Int4Weight
from lab.quantization.packed.int8 import Int8Weight
from lab.quantization.packed.modules import PackedLinear

_SHARD = 1 << 23
"""Bytes written between two pauses; a larger tensor goes into several files, by rows."""


def tensors_of(shell: nn.Module) -> dict[str, Tensor]:
    """What files of a packed shell hold, by name: canonical codes and scales, and dense tensors, tied ones once."""
    found: dict[str, Tensor] = {}
    for name, module in shell.named_modules():
        if isinstance(module, PackedLinear):
            weight = module.weight_codes
            if isinstance(weight, Int8Weight):
                found |= {f"{name}.codes": weight.codes, f"{name}.scales": weight.scales}
            elif isinstance(weight, Int4Weight):
                found |= {
                    f"{name}.nibbles": weight.nibbles,
                    f"{name}.scales": weight.scales,
                    f"{name}.zeros": weight.zeros,
                }
            if module.bias_values is not None:
                found[f"{name}.bias"] = module.bias_values
    seen: set[int] = set()
    for name, parameter in shell.named_parameters():
        if id(parameter) not in seen:
            seen.add(id(parameter))
            found[name] = parameter.detach()
    return found


def write_and_load(shell: nn.Module, name: str) -> Made[tuple[int, bool]]:
    """Write a packed model, load it again, compare bit for bit, and remove it. Bytes of the files; whether they agree.

    Raises:
        LabError: the disk refuses; nothing is left behind.
    """
    tensors = tensors_of(shell)
    root = paths.cache_dir() / "tmp"
    size, same = 0, True
    try:
        root.mkdir(parents=True, exist_ok=True)
        require_disk(f"The packed model ({name})", sum(t.numel() * t.element_size() for t in tensors.values()))
        with tempfile.TemporaryDirectory(dir=root, prefix="packed-") as folder:
            for number, shard in enumerate(_shards(tensors)):
                file = Path(folder) / f"{number:04}.safetensors"
                save_file({k: t.contiguous() for k, t in shard.items()}, file, metadata={"format": "pt"})
                size += file.stat().st_size
                yield None
                with safe_open(file, "pt") as reader:
                    same = same and all(torch.equal(reader.get_tensor(key), value) for key, value in shard.items())
                yield None
    except OSError as error:
        raise LabError(
            f"The packed model could not be written: {error.strerror or type(error).__name__}.",
            remedy="Free space in the cache directory.",
        ) from error
    return size, same


def _pieces(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for key, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if size <= _SHARD:
            yield key, tensor
            continue
        rows = max(1, _SHARD * len(tensor) // size)
        for start in range(0, len(tensor), rows):
            piece = tensor[start : start + rows]
            yield f"{key}[{start}:{start + len(piece)}]", piece


def _shards(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    held = 0
    for key, tensor in _pieces(tensors):
        size = tensor.numel() * tensor.element_size()
        if held and held + size > _SHARD:
            shards.append({})
            held = 0
        shards[-1][key] = tensor
        held += size
    return shards
