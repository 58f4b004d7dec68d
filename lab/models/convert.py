"""Turning a GGUF file into a directory in transformers format: fp32 safetensors, tokenizer, manifest."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import ModelError
from lab.models.atomic import ProgressCallback, silent
from lab.models.gguf_header import GGUFHeader, read_gguf_header
from lab.models.manifest import Manifest, write_manifest
from lab.models.weights import weight_hash

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_CHUNK = 1 << 20


def file_sha256(path: Path, progress: ProgressCallback = silent) -> str:
    """sha256 of a file, hex."""
    digest = hashlib.sha256()
    size, done = path.stat().st_size, 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            progress("checking the file", done / size)
    return digest.hexdigest()


def convert_gguf(
    file: Path,
    directory: Path,
    *,
    name: str,
    source: str,
    source_sha256: str,
    license_name: str = "",
    progress: ProgressCallback = silent,
) -> None:
    """Fill `directory` with the model of a GGUF file, its weights exactly as the file's numbers say, in fp32.

    fp32 because bf16 would move most of the weights off their quantization grid.

    Raises:
        ModelError: the file is damaged, or of an architecture or a tensor type that cannot be read.
    """
    header = read_gguf_header(file)
    progress("unpacking the weights to fp32", None)
    grid = _save_model(header, directory, progress)
    progress("building the tokenizer", None)
    _save_tokenizer(header, directory)
    progress("hashing the weights", None)
    write_manifest(
        directory,
        Manifest(
            name=name,
            source=source,
            source_sha256=source_sha256,
            weight_hash=weight_hash(directory),
            grid=grid,
            license=license_name or str(header.metadata.get("general.license", "")),
            dtype="float32",
            tensor_types=header.tensor_types(),
            versions={package: version(package) for package in ("gguf", "transformers", "tokenizers")},
        ),
    )


def grid_of(header: GGUFHeader) -> str | None:
    """The grid that most of a GGUF file's matrices lie on, in words: "Q4_1, groups of 32"."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    matrices = [t for t in header.tensors if len(t.shape) == 2 and "embd" not in t.name]
    types = {t.type_name for t in matrices}
    if not matrices:
        return None
    main = max(sorted(types), key=lambda kind: sum(t.nbytes for t in matrices if t.type_name == kind))
    block, _ = GGML_QUANT_SIZES[GGMLQuantizationType[main]]
    if block == 1:
        return None
    others = sorted({t.type_name for t in header.tensors if t.type_name != main and len(t.shape) == 2})
    return f"{main}, groups of {block}" + (f"; some tensors {', '.join(others)}" if others else "")


def _save_model(header: GGUFHeader, directory: Path, progress: ProgressCallback) -> str | None:
    """Write config and weights; gives the grid that they lie on."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    from lab.models.quiet import quiet_transformers, report_gguf_tensors

    auto: Any = AutoModelForCausalLM  # its methods carry no types
    try:
        with quiet_transformers(), report_gguf_tensors(lambda done: progress("unpacking the weights to fp32", done)):
            model, info = auto.from_pretrained(
                str(header.path.parent),
                gguf_file=header.path.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
                local_files_only=True,
                output_loading_info=True,
            )
    except (ValueError, KeyError, NotImplementedError, RuntimeError, AttributeError, TypeError, IndexError) as error:
        raise _unreadable(header, error) from error
    missing = sorted(info.get("missing_keys", ()))
    if missing:
        raise ModelError(
            f"{header.path.name} lacks tensors that a {header.architecture} model needs: {', '.join(missing[:3])}"
            f"{' and more' if len(missing) > 3 else ''}.",
            remedy="Use another file of this model.",
        )
    # What the loader leaves in the config would make the saved directory claim to be quantized.
    for attribute in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, attribute):
            delattr(model.config, attribute)
    model.hf_quantizer = None
    model.is_quantized = False
    progress("writing the weights", None)
    with quiet_transformers():
        model.save_pretrained(directory, max_shard_size="4GB")
    for file in directory.glob("*.safetensors"):
        file.chmod(0o644)
    _mark_config(directory)
    return _checked_grid(header, model)


def _checked_grid(header: GGUFHeader, model: PreTrainedModel) -> str | None:
    """The grid that the file's types promise; for Q4_1 it is also measured on a matrix, and None if not found there."""
    from lab.models.grid import check_grid

    grid = grid_of(header)
    if grid is None or not grid.startswith("Q4_1,"):
        return grid
    names = {t.name for t in header.tensors if t.type_name == "Q4_1"}
    for name, parameter in model.named_parameters():
        if name.endswith("layers.0.mlp.up_proj.weight") and "blk.0.ffn_up.weight" in names:
            return grid if check_grid(parameter).on_grid else None
    return grid


def _mark_config(directory: Path) -> None:
    path = directory / "config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    config.pop("quantization_config", None)
    config.pop("_name_or_path", None)
    config.pop("_model_name_or_path", None)
    config["dtype"] = "float32"
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")


def _save_tokenizer(header: GGUFHeader, directory: Path) -> None:
    from transformers import AutoTokenizer

    from lab.models.quiet import quiet_transformers

    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(
                str(header.path.parent), gguf_file=header.path.name, local_files_only=True
            )
    except (ValueError, KeyError, NotImplementedError, RuntimeError, AttributeError, TypeError, IndexError) as error:
        raise _unreadable(header, error, "the tokenizer") from error
    repair_pre_tokenizer(tokenizer, str(header.metadata.get("tokenizer.ggml.pre", "")))
    tokenizer.save_pretrained(directory)


def repair_pre_tokenizer(tokenizer: PreTrainedTokenizerBase, pre: str) -> None:
    """Split digits singly where the file says so: transformers has no entry for these pre-tokenizers.

    Args:
        pre: the file's `tokenizer.ggml.pre`.
    """
    if pre not in ("smollm", "starcoder", "refact", "command-r"):
        return
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
        )


def _unreadable(header: GGUFHeader, error: Exception, what: str = "the model") -> ModelError:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return ModelError(
        f"{header.path.name} ({header.architecture}) cannot be converted: transformers could not read {what}: {reason}",
        remedy="Use a model of another architecture, or a directory in transformers format.",
    )
