"""The bf16 copy of a converted model: a file whose dtype is the run's can be shared by memory mapping."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import torch

from lab.errors import ModelError
from lab.models.atomic import ProgressCallback, build_directory, silent
from lab.models.manifest import MANIFEST, is_whole, read_manifest, write_manifest
from lab.models.weights import weight_files, weight_hash


def bfloat16_sibling(directory: Path, progress: ProgressCallback = silent) -> Path:
    """The directory that holds `directory`'s weights rounded to bf16; made when missing.

    Args:
        directory: a model that the lab converted (it has a manifest).
    """

    def is_current(path: Path) -> bool:
        # A converted model that was made anew has another hash: its old copy must not be taken for it.
        mine, base = read_manifest(path), read_manifest(directory)
        return mine is not None and base is not None and mine.source == f"bf16 of {base.weight_hash}" and is_whole(path)

    def build(target: Path) -> None:
        progress("deriving the bf16 weights", None)
        _write(directory, target)

    return build_directory(
        directory.with_name(f"{directory.name}-bf16"), build, is_complete=is_current, progress=progress
    )


def _write(directory: Path, target: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    manifest = read_manifest(directory)
    if manifest is None:
        raise ModelError(f"{directory.name} was not converted by the lab.")
    for file in weight_files(directory):
        with safe_open(str(file), framework="pt") as source:
            tensors = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118 - no mapping
        rounded = {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in tensors.items()}
        save_file(rounded, str(target / file.name), metadata={"format": "pt"})
        (target / file.name).chmod(0o644)
    for path in directory.iterdir():
        if path.is_file() and path.name != MANIFEST and not (target / path.name).exists():
            shutil.copyfile(path, target / path.name)
    config = target / "config.json"
    body = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**body, "dtype": "bfloat16"}, indent=1), encoding="utf-8")
    derived = replace(
        manifest,
        source=f"bf16 of {manifest.weight_hash}",
        weight_hash=weight_hash(target),
        grid=None,
        dtype="bfloat16",
    )
    write_manifest(target, derived)
