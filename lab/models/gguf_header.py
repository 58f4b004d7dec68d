"""Reading a GGUF file's header: metadata and tensor table, bounds checked. No torch here.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import ModelError, shown

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_LONG_ARRAYS_KEPT = 1024
_MAX_TENSORS, _MAX_NAME = 1_000_000, 120


@dataclass(frozen=True)
class GGUFTensor:
    """One tensor of a GGUF file; `shape` in torch's order (rows first)."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    nbytes: int


@dataclass(frozen=True)
class GGUFHeader:
    """What a GGUF file says of itself. Arrays longer than 1024 in `metadata` are replaced by their length."""

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[GGUFTensor, ...]

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    @property
    def elements(self) -> int:
        return sum(math.prod(t.shape) for t in self.tensors)

    def tensor_types(self) -> dict[str, int]:
        """How many tensors have each type: {"Q4_1": 210, "F32": 61, "Q8_0": 1}."""
        return dict(Counter(t.type_name for t in self.tensors).most_common())


class _Reader:
    """Reads values one after another and refuses to read beyond the end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise damaged(self.path, f"its header needs byte {self.at + count:,} of a file of {len(self.data):,} bytes")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            raise damaged(self.path, f"it holds a value of the unknown type {kind}")
        inner, count = self.number("<I"), self.number("<Q")
        if inner in _SCALARS:
            form = _SCALARS[inner]
            raw = self.take(count * struct.calcsize(form))
            return count if count > _LONG_ARRAYS_KEPT else list(struct.unpack(f"<{count}{form[1]}", raw))
        if inner != _STRING or count > len(self.data):
            raise damaged(self.path, f"it holds an array of {count:,} values of type {inner}")
        strings = [self.string() for _ in range(count)]
        return count if count > _LONG_ARRAYS_KEPT else strings


def read_gguf_header(path: Path) -> GGUFHeader:
    """The header of a GGUF file, checked against the file's real size.

    Raises:
        ModelError: no such file, empty, truncated, not GGUF, or tensors of a type that cannot be read (named).
    """
    if not path.is_file():
        raise ModelError(f"There is no file {path}.", remedy="Check the path.")
    size = path.stat().st_size
    if size < 24:
        raise damaged(path, f"it has {size} bytes")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _read(_Reader(path, data), size)


def _read(reader: _Reader, size: int) -> GGUFHeader:
    path = reader.path
    if reader.take(4) != b"GGUF":
        raise ModelError(f"{path.name} is not a GGUF file: it does not start with 'GGUF'.", remedy="Check the path.")
    version = reader.number("<I")
    if version not in (2, 3):
        raise ModelError(
            f"{path.name} is GGUF version {version}; versions 2 and 3 can be read.",
            remedy="Write it again with a current llama.cpp.",
        )
    tensor_count, value_count = reader.number("<Q"), reader.number("<Q")
    if tensor_count > _MAX_TENSORS or value_count > _MAX_TENSORS:
        raise damaged(path, f"it claims {tensor_count:,} tensors and {value_count:,} values")
    metadata = {}
    for _ in range(value_count):
        key = reader.string()
        metadata[key] = reader.value(reader.number("<I"))
    table = []
    for _ in range(tensor_count):
        name, dims = reader.string(), reader.number("<I")
        if dims > 8:
            raise damaged(path, f"{shown(name)} has {dims} dimensions")
        shape = tuple(reader.number("<Q") for _ in range(dims))[::-1]
        table.append((name, shape, reader.number("<I"), reader.number("<Q")))
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1:
        raise damaged(path, f"its alignment is {alignment!r}")
    start = -(-reader.at // alignment) * alignment
    tensors = []
    for name, shape, type_id, offset in table:
        tensor = GGUFTensor(name, shape, *_storage(path, name, shape, type_id))
        if start + offset + tensor.nbytes > size:
            raise damaged(path, f"{name!r} ends at byte {start + offset + tensor.nbytes:,} of a file of {size:,} bytes")
        tensors.append(tensor)
    if not tensors:
        raise ModelError(f"{path.name} holds no tensors.", remedy="A GGUF file of a whole model is needed.")
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or len(architecture) > _MAX_NAME:
        raise ModelError(f"{path.name} does not say which architecture it is (general.architecture).")
    if "tokenizer.ggml.model" not in metadata or "tokenizer.ggml.tokens" not in metadata:
        raise ModelError(
            f"{path.name} holds no tokenizer (tokenizer.ggml.tokens).",
            remedy="Use a GGUF file of a whole language model; adapters and vision projectors have none.",
        )
    if metadata.get("split.count", 1) not in (0, 1):
        raise ModelError(
            f"{path.name} is one of {metadata['split.count']} parts.", remedy="Join them first with llama-gguf-split."
        )
    return GGUFHeader(path, metadata, tuple(tensors))


def _storage(path: Path, name: str, shape: tuple[int, ...], type_id: int) -> tuple[str, int]:
    """A tensor type's name and how many bytes the tensor takes."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import _type_traits

    try:
        kind = GGMLQuantizationType(type_id)
        block, block_bytes = GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        raise ModelError(
            f"{path.name} stores {shown(name)} in the unknown tensor type {type_id}.",
            remedy="Update the gguf package, or use a file in another quantization, Q4_K_M for example.",
        ) from None
    floats = (GGMLQuantizationType.F32, GGMLQuantizationType.F16)
    if kind not in floats and kind not in _type_traits:
        raise ModelError(
            f"{path.name} stores {name!r} as {kind.name}, which cannot be turned back into numbers here.",
            remedy="Use a file in another quantization, Q4_K_M for example.",
        )
    elements = math.prod(shape)
    if elements % block:
        raise damaged(path, f"{name!r} has {elements:,} elements, no whole number of {kind.name} blocks")
    return kind.name, elements // block * block_bytes


def damaged(path: Path, why: str) -> ModelError:
    """The error for a GGUF file that is cut short or garbled."""
    return ModelError(
        f"The GGUF file {path.name} is damaged: {why}.",
        remedy="It was probably cut short: copy or download it again.",
    )
