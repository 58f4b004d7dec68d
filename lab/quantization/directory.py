"""A quantized model as a directory: written whole or not at all.

It holds `quantized.safetensors` (canonical codes and scales, and what stayed dense), the config, the tokenizer and a
card. Nothing in it is in a processor's own order: packing happens at load.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from lab.models.atomic import check_out, filled_directory
from lab.models.disk import require_room
from lab.models.loading import LoadedModel
from lab.models.writing import stored_once, write_around
from lab.quantization.card import WEIGHTS, Card, finite, write_card
from lab.quantization.packed_file import to_file
from lab.quantization.whole_model import WholeModel


def write_quantized(
    out: Path,
    loaded: LoadedModel,
    made: WholeModel,
    *,
    method: str,
    settings: dict[str, Any],
    calibration: dict[str, Any],
    figures: dict[str, Any],
) -> Card:
    """Write a quantized model to `out`, which must not exist.

    It is filled under another name beside it and renamed at the end. What a killed process left so is removed by
    the next one that writes there.

    Args:
        loaded: the dense model.
        made: with the codes of its modules kept.
        method, settings, calibration, figures: for the card; see `Card`. The file's own bits per weight are added.

    Raises:
        BadInput: `out` exists or cannot be made.
        ModelError: the disk is full or fails; nothing is left.
    """
    check_out(out)
    tensors, modules, code_bytes = _tensors(made)
    weights = sum(result.storage.weights for result in made.modules)
    figures = {**figures, "file_bits_per_weight": 8 * code_bytes / weights}
    require_room(out, sum(t.nbytes for t in tensors.values()))
    with filled_directory(out) as partial:
        save_file(tensors, str(partial / WEIGHTS), metadata={"format": "pt", "lab": "quantized"})
        (partial / WEIGHTS).chmod(0o644)
        write_around(out, partial, made.shell, loaded.tokenizer)
        card = Card(
            model=loaded.facts,
            method=method,
            settings=settings,
            calibration=calibration,
            figures=finite(figures),
            modules=finite(modules),
            skipped={part.name: part.reason for part in made.coverage.skipped},
            file_sha256=sha256_of(partial / WEIGHTS),
            versions={"torch": torch.__version__},
        )
        write_card(partial, card)
    return card


def sha256_of(file: Path) -> str:
    """Hex digest of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _tensors(made: WholeModel) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]], int]:
    """Every tensor of the file by name, how each quantized module is read, and the bytes of all of these.

    Tied tensors are kept once.
    """
    tensors: dict[str, Tensor] = {}
    modules: dict[str, dict[str, Any]] = {}
    parts, code_bytes = dict(made.shell.named_modules()), 0
    for result in made.modules:
        if result.quantized is None:
            raise AssertionError("the codes were kept")
        stored, described = to_file(result.quantized)
        tensors.update({f"{result.name}.{name}": tensor.contiguous() for name, tensor in stored.items()})
        code_bytes += sum(tensor.nbytes for tensor in stored.values())
        modules[result.name] = {
            **described,
            "transposed": type(parts[result.name]).__name__ == "Conv1D",
            "bits_per_weight": result.storage.bits_per_weight,
            "weight_error": result.weight_error,
            "output_error": result.output_error,
        }
    for name, tensor in stored_once(made.shell, but=modules).items():
        tensors[name] = tensor.cpu().contiguous()
    return tensors, modules, code_bytes
