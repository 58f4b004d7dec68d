"""The manifest beside each model that the lab converted: what it was made from and how to check it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "lab-manifest.json"
FORMAT = 1
"""Version of the layout of a converted model. A directory with another one is converted anew."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a converted model says of itself.

    Attributes:
        source_sha256: of the GGUF file, hex.
        weight_hash: see `lab.models.weights.weight_hash`.
        grid: the quantization grid of the stored weights in words, or None.
        tensor_types: how many tensors of the GGUF file had each type.
        file_bytes: size of each file of the directory, by name.
    """

    format: int = FORMAT
    name: str
    source: str
    source_sha256: str
    weight_hash: str
    grid: str | None
    license: str
    dtype: str
    tensor_types: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    file_bytes: dict[str, int] = field(default_factory=dict)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write `manifest` into `directory`, which holds all its other files already."""
    sizes = {p.name: p.stat().st_size for p in sorted(directory.iterdir()) if p.is_file() and p.name != MANIFEST}
    body = {**asdict(manifest), "file_bytes": sizes}
    (directory / MANIFEST).write_text(json.dumps(body, indent=1, ensure_ascii=False), encoding="utf-8")


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a converted model, None if there is none that this version can read."""
    try:
        body: Any = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            return None
        return Manifest(**body)
    except (OSError, ValueError, TypeError):
        return None


def is_whole(directory: Path) -> bool:
    """Whether a converted model is there with all its files at their sizes. Reads no weights."""
    manifest = read_manifest(directory)
    if manifest is None or not manifest.file_bytes:
        return False
    try:
        return all((directory / name).stat().st_size == size for name, size in manifest.file_bytes.items())
    except OSError:
        return False
