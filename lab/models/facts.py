"""Facts of a model directory: from its config and the headers of its tensors. No weights are loaded."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from lab import paths
from lab.errors import LabError
from lab.events import LayerFacts, ModelFacts
from lab.models.architecture import Shape, read_config, shape_of
from lab.models.manifest import read_manifest
from lab.models.weights import DTYPE_NAMES, StoredTensor, stored_tensors, weight_files, weight_hash

_HEAD_NAMES = ("lm_head.weight", "output.weight", "embed_out.weight")
_NOT_PARAMETERS = re.compile(r"(rotary_emb\.inv_freq|\.attn\.masked_bias|\.attention\.(bias|masked_bias))$")
_KEY_MATRIX = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.([0-9]{1,6})\.(?:self_attn|attn|attention)\.k_proj\.weight$")


def facts_of_directory(directory: Path, *, model_id: str, source: str, hash_weights: bool = True) -> ModelFacts:
    """Read the facts of a model directory in transformers format.

    Args:
        model_id: how the model is asked for.
        source: "packaged", "directory", "gguf" or "hub".
        hash_weights: whether to give the weight hash, which reads all weights the first time.

    Raises:
        ModelError: the directory is no model that the lab can run; see `read_config` and `stored_tensors`.
    """
    config = read_config(directory)
    manifest = read_manifest(directory)
    name = manifest.name if manifest else directory.name
    shape = shape_of(config, name)
    tensors = stored_tensors(directory)
    counted = parameters_of(tensors, tied=shape.tied)
    dtypes: Counter[str] = Counter()
    for tensor in counted:
        dtypes[tensor.dtype] += tensor.nbytes
    main = dtypes.most_common(1)[0][0] if dtypes else "F32"
    return ModelFacts(
        id=model_id,
        name=name,
        source=source,
        architecture=shape.architecture,
        present=True,
        layers=_with_tensors(shape, tensors),
        hidden=shape.hidden,
        query_heads=shape.query_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab=shape.vocab,
        context=shape.context,
        tied=shape.tied,
        parameters=sum(t.elements for t in counted),
        dtype=DTYPE_NAMES.get(main, main.lower()),
        weight_bytes=sum(t.nbytes for t in counted),
        weight_hash=_weight_hash(directory) if hash_weights else "",
        grid=manifest.grid if manifest else None,
        chat_template=_has_chat_template(directory),
        license=manifest.license if manifest else _license(directory),
    )


def parameters_of(tensors: dict[str, StoredTensor], *, tied: bool) -> list[StoredTensor]:
    """The stored tensors that are parameters, tied ones once."""
    return [
        t
        for name, t in tensors.items()
        if t.dtype in DTYPE_NAMES and not _NOT_PARAMETERS.search(name) and not (tied and name.endswith(_HEAD_NAMES))
    ]


def _with_tensors(shape: Shape, tensors: dict[str, StoredTensor]) -> tuple[LayerFacts, ...]:
    """The layers with the key/value heads that their own key matrices have: a config gives one number for all."""
    rows: dict[int, int] = {}
    for name, tensor in tensors.items():
        match = _KEY_MATRIX.search(name)
        if match and len(tensor.shape) == 2 and "vision" not in name and "encoder" not in name:
            rows[int(match[1])] = tensor.shape[0]
    layers = []
    for index, layer in enumerate(shape.layers):
        found = rows.get(index)
        if found is None or layer.kind == "other" or found == layer.kv_heads * layer.head_dim:
            layers.append(layer)
        elif layer.head_dim and found % layer.head_dim == 0:
            layers.append(replace(layer, kv_heads=found // layer.head_dim))
        else:
            layers.append(replace(layer, kind="other", window=None))
    return tuple(layers)


def _weight_hash(directory: Path) -> str:
    """The weight hash, remembered by the files' paths, sizes and times of change."""
    manifest = read_manifest(directory)
    if manifest is not None:
        return manifest.weight_hash
    stats = [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in weight_files(directory)]
    key = hashlib.sha256(json.dumps(stats).encode()).hexdigest()
    try:
        remembered = paths.cache_dir() / "hashes" / key
        if remembered.is_file():
            text = remembered.read_text(encoding="ascii").strip()
            if re.fullmatch(r"[0-9a-f]{64}", text):
                return text
        value = weight_hash(directory)
        remembered.parent.mkdir(exist_ok=True)
        remembered.write_text(value, encoding="ascii")
    except (LabError, OSError, UnicodeDecodeError):
        # Remembering only saves time: a cache that cannot be written must not hide the facts.
        value = weight_hash(directory)
    return value


def _has_chat_template(directory: Path) -> bool:
    if (directory / "chat_template.jinja").is_file() or (directory / "chat_template.json").is_file():
        return True
    try:
        body = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(body, dict) and bool(body.get("chat_template"))


def _license(directory: Path) -> str:
    """The licence that the model's card names, "" if it has none."""
    try:
        head = (directory / "README.md").read_text(encoding="utf-8", errors="replace")[:4000]
    except OSError:
        return ""
    match = re.search(r"^license:\s*([\w.+-]{1,60})\s*$", head, re.MULTILINE)
    return match[1] if match and head.startswith("---") else ""
