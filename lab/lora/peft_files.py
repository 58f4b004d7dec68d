"""Adapters as files in peft's format: adapter_config.json and adapter_model.safetensors.

Tensors are called base_model.model.<module>.lora_A.weight, (r, in), and lora_B.weight, (out, r), for a Conv1D too. Only
safetensors are read, after their header was checked against the file; pickle is refused by name.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lab.errors import BadInput, ModelError, shown
from lab.lora.adapter import MAX_RANK, Adapter, BaseFacts, Factors, LoraConfig, not_finite
from lab.lora.attach import MAX_FACTOR
from lab.lora.peft_config import CONFIG, MAX_TARGETS, PeftConfig, folder_in_words, peft_config, read_peft_config
from lab.lora.regular import MAX_WEIGHT_BYTES
from lab.models.atomic import check_out, filled_directory
from lab.models.weights import StoredTensor, read_header

WEIGHTS = "adapter_model.safetensors"
MAX_TENSORS = 100_000
MAX_SIDE = 10_000_000
"""Rows or columns of a matrix."""

_PREFIX = "base_model.model."
_FACTOR = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_DTYPES = ("F32", "F16", "BF16")
_AGAIN = "Copy the adapter again."
_OTHER_KINDS = {
    "lora_magnitude_vector": "it is a DoRA adapter",
    "lora_embedding_": "it trained an embedding",
    "lora_B.bias": "it trained biases",
    "lora_A.bias": "it trained biases",
    "modules_to_save": "it brings whole trained modules",
    "token_adapter": "it trained embeddings of single tokens",
    "embed_tokens": "it brings the embedding",
    "lora_E": "it is an AdaLoRA adapter",
    "ia3_": "it is an IA3 adapter",
    "prompt_": "it trained prompts",
}


def read_adapter(directory: Path, *, name: str = "") -> Adapter:
    """Read an adapter that peft or the lab wrote. Whether it fits a model says `adapter.misfit`.

    Args:
        name: for lists; by default the one in the file, else the directory's.

    Raises:
        ModelError: no adapter, another kind than plain LoRA, pickle only, or files that are damaged or do not
            belong together.
    """
    config = read_peft_config(directory)
    label = folder_in_words(directory)
    file = directory / WEIGHTS
    if not file.is_file():
        raise _no_weights(directory, label)
    size = file.stat().st_size
    if size > MAX_WEIGHT_BYTES:
        raise ModelError(f"{WEIGHTS} has {size:,} bytes; at most {MAX_WEIGHT_BYTES:,} are read.", remedy=_AGAIN)
    stored = read_header(file)
    modules = _paired(label, stored)
    alphas = _settled(label, modules, config)
    try:
        with safe_open(str(file), framework="pt") as opened:
            told = _told(opened.metadata())
            tensors = {
                module: Factors(*(_factor(opened.get_tensor(part.name), part.name) for part in pair))
                for module, pair in modules.items()
            }
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{WEIGHTS} of {label} cannot be read: {str(error)[:200]}", remedy=_AGAIN) from None
    shapes = {module: (b.shape[0], a.shape[1]) for module, (a, b) in tensors.items()}
    targets = told["targets"] or config.targets or tuple(dict.fromkeys(m.rpartition(".")[2] for m in tensors))
    adapter = Adapter(
        name=name or told["name"] or _name_of(directory),
        config=LoraConfig(config.rank, config.alpha, targets, config.rslora),
        tensors=tensors,
        base=BaseFacts(config.model_id, shapes, told["vocabulary"], told["weight_hash"], config.transposed),
        alphas=alphas,
    )
    _refuse_overflow(adapter)
    return adapter


def write_adapter(adapter: Adapter, out: Path, *, card: str = "") -> Path:
    """Write `adapter` as a directory that peft can load; whole or not at all.

    Args:
        out: must not exist.
        card: the text of its README.md, none if empty.

    Raises:
        BadInput: `out` exists or cannot be made.
        ModelError: the disk is full or fails.
    """
    check_out(out)
    tensors = {}
    for module, (a, b) in adapter.tensors.items():
        tensors[f"{_PREFIX}{module}.lora_A.weight"] = a.detach().cpu().contiguous()
        tensors[f"{_PREFIX}{module}.lora_B.weight"] = b.detach().cpu().contiguous()
    told = {
        "name": adapter.name,
        "vocabulary": adapter.base.vocabulary,
        "weight_hash": adapter.base.weight_hash,
        "targets": list(adapter.config.targets),
    }

    def build(partial: Path) -> None:
        save_file(tensors, str(partial / WEIGHTS), metadata={"format": "pt", "lab": json.dumps(told)})
        (partial / WEIGHTS).chmod(0o644)
        body = json.dumps(peft_config(adapter), indent=2) + "\n"
        (partial / CONFIG).write_text(body, encoding="utf-8")
        if card:
            (partial / "README.md").write_text(card, encoding="utf-8")

    with filled_directory(out, wait=False) as partial:
        build(partial)
    return out


def _name_of(directory: Path) -> str:
    """For lists: the directory's name, what cannot be printed escaped."""
    name = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in directory.name)
    return name or "the root directory"


Pairs = dict[str, tuple[StoredTensor, StoredTensor]]


def _paired(label: str, stored: list[StoredTensor]) -> Pairs:
    """A and B of each module."""
    if len(stored) > MAX_TENSORS:
        raise ModelError(f"{WEIGHTS} of {label} holds {len(stored):,} tensors.", remedy=_AGAIN)
    found: dict[str, dict[str, StoredTensor]] = {}
    for tensor in stored:
        match = _FACTOR.fullmatch(tensor.name)
        if match is None:
            raise _foreign(label, tensor.name)
        if tensor.dtype not in _DTYPES or len(tensor.shape) != 2 or not all(0 < n <= MAX_SIDE for n in tensor.shape):
            raise ModelError(
                f"{shown(tensor.name)} of {label} is {tensor.dtype} of shape {shown(list(tensor.shape))}, no factor.",
                remedy=_AGAIN,
            )
        found.setdefault(match[1], {})[match[2]] = tensor
    if not found:
        raise ModelError(f"{WEIGHTS} of {label} holds no tensor: it adapts nothing.", remedy=_AGAIN)
    for module, parts in found.items():
        if len(parts) < 2:
            raise ModelError(f"{label} lacks one of the factors of {shown(module)}.", remedy=_AGAIN)
    return {module: (parts["A"], parts["B"]) for module, parts in found.items()}


def _settled(label: str, pairs: Pairs, config: PeftConfig) -> dict[str, float]:
    """Check the factors against each other and against the config; the alphas that are not the config's."""
    try:
        ranks, alphas = config.ranks_of(pairs), config.alphas_of(pairs)
    except BadInput as error:
        raise ModelError(f"The {CONFIG} of {label}: {error.message}", remedy=error.remedy or _AGAIN) from None
    for module, (a, b) in pairs.items():
        rank = ranks[module]
        if a.shape[0] != b.shape[1] or a.shape[0] != rank or rank > MAX_RANK:
            raise ModelError(
                f"{shown(module)} of {label} has the factors {list(a.shape)} and {list(b.shape)}, "
                f"and its config says rank {rank}.",
                remedy=_AGAIN,
            )
    for target in config.unmet_targets(pairs)[:1]:
        raise ModelError(
            f"{label} names the target {shown(target)}, but holds no factors for it.",
            remedy="Copy it again, or take the name out of its target_modules.",
        )
    return {module: alpha for module, alpha in alphas.items() if alpha != config.alpha}


def _refuse_overflow(adapter: Adapter) -> None:
    """Refuse factors whose product may be beyond fp32, by their largest values: the product itself may be huge."""
    for module, (a, b) in adapter.tensors.items():
        bound = a.shape[0] * float(a.abs().max()) * float(b.abs().max())
        if bound * max(1.0, MAX_FACTOR * abs(adapter.scale(module))) > torch.finfo(torch.float32).max / 2:
            raise not_finite(module, adapter.name)


def _factor(tensor: Tensor, name: str) -> Tensor:
    wide = tensor.float()
    if not bool(torch.isfinite(wide).all()):
        raise ModelError(f"{shown(name)} holds values that are not finite.", remedy="Train the adapter again.")
    return wide


def _told(metadata: dict[str, str] | None) -> dict[str, Any]:
    """What our own files say besides; foreign or broken values count as not said."""
    try:
        raw: Any = json.loads((metadata or {}).get("lab", "{}"))
    except (ValueError, RecursionError):
        raw = {}
    raw = raw if isinstance(raw, dict) else {}
    name, vocabulary, digest, targets = (raw.get(key) for key in ("name", "vocabulary", "weight_hash", "targets"))
    names = isinstance(targets, list) and len(targets) <= MAX_TARGETS and all(isinstance(t, str) and t for t in targets)
    return {
        "name": name if isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable() else "",
        "vocabulary": vocabulary if type(vocabulary) is int and 0 < vocabulary <= MAX_SIDE else None,
        "weight_hash": digest if isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest) else "",
        "targets": tuple(targets) if names and isinstance(targets, list) else (),
    }


def _foreign(label: str, name: str) -> ModelError:
    for part, why in _OTHER_KINDS.items():
        if part in name:
            return ModelError(f"{label} is no plain LoRA: {why} ({shown(name)}).", remedy="Convert it first.")
    return ModelError(
        f"{label} holds a tensor {shown(name)} that is no factor of plain LoRA.",
        remedy="Its names must be base_model.model.<module>.lora_A.weight and lora_B.weight.",
    )


def _no_weights(directory: Path, label: str) -> ModelError:
    kinds = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
    pickles = sorted(path.name for kind in kinds for path in directory.glob(kind))
    if pickles:
        return ModelError(
            f"{label} holds its weights only as pickle ({shown(pickles[0], 100)}), which can run code when opened; "
            "the lab reads safetensors only.",
            remedy="Save it again with peft: save_pretrained writes safetensors.",
        )
    return ModelError(f"{label} holds no {WEIGHTS}.", remedy="Point to a directory that peft or the lab wrote.")
