"""Reading safetensors files by their headers: sizes, dtypes, a hash - without torch, and trusting nothing."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import ModelError, shown

_MAX_HEADER, _MAX_NAME = 100_000_000, 1_000
_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32,
    "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
DTYPE_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file. `start` and `end` are bytes from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.end - self.start


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files that hold a model's weights, as its index names them.

    Raises:
        ModelError: there are none, or a file of the index is missing.
    """
    index = directory / _INDEX
    single = directory / "model.safetensors"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise _no_weights(directory)
    try:
        body = json.loads(index.read_text(encoding="utf-8"))
        names = sorted({str(name) for name in body["weight_map"].values()})
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise ModelError(f"{_INDEX} is not a readable index of weights.", remedy="Copy the model again.") from None
    for name in names:
        if Path(name).name != name:
            raise ModelError(f"The weight index names a file outside its own directory: {shown(name)}.")
        try:
            here = (directory / name).is_file()
        except OSError:  # a name that no file can have
            here = False
        if not here:
            raise ModelError(f"The weight file {name[:200]} is missing.", remedy="Copy the model again.")
    if not names:
        raise _no_weights(directory)
    return [directory / name for name in names]


def stored_tensors(directory: Path) -> dict[str, StoredTensor]:
    """All tensors of a model by name, from the headers alone.

    Raises:
        ModelError: no weights, pickle weights only, or a file that is truncated or lies about itself.
    """
    found: dict[str, StoredTensor] = {}
    for file in weight_files(directory):
        for tensor in read_header(file):
            if tensor.name in found:
                raise ModelError(f"Two weight files hold a tensor called {tensor.name!r}.")
            found[tensor.name] = tensor
    return found


def read_header(file: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file, checked against the file's real size.

    Raises:
        ModelError: see `stored_tensors`.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
        if len(head) < 8:
            raise _bad(file, f"it has {size} bytes, too few for a header")
        (length,) = struct.unpack("<Q", head)
        if length > _MAX_HEADER or 8 + length > size:
            raise _bad(file, f"its header claims {length:,} bytes in a file of {size:,}")
        raw = stream.read(length)
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise _bad(file, "its header is not JSON") from None
    if not isinstance(body, dict):
        raise _bad(file, "its header is not an object")
    body.pop("__metadata__", None)
    tensors = [_tensor(file, name, entry, 8 + length, size) for name, entry in body.items()]
    end = 8 + length
    for tensor in sorted(tensors, key=lambda t: (t.start, t.end)):
        if tensor.start != end:
            raise _bad(file, f"the bytes of {tensor.name!r} overlap another tensor or leave a gap")
        end = tensor.end
    if end != size:
        raise _bad(file, f"its tensors end at byte {end:,} of {size:,}")
    return tensors


def weight_hash(directory: Path) -> str:
    """sha256 over a model's weights, hex: each tensor's name, dtype, shape and bytes, in order of name.

    It does not depend on how the tensors are spread over files, nor on the files' own metadata.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(stored_tensors(directory).items()):
        digest.update(f"{name}\0{tensor.dtype}\0{','.join(map(str, tensor.shape))}\0".encode())
        if tensor.nbytes:
            with tensor.file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                view = memoryview(data)
                try:
                    digest.update(view[tensor.start : tensor.end])
                finally:
                    view.release()
    return digest.hexdigest()


def _tensor(file: Path, name: str, entry: Any, data_start: int, size: int) -> StoredTensor:
    try:
        dtype = entry["dtype"]
        shape = tuple(entry["shape"])
        start, end = entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise _bad(file, f"its entry for {shown(name)} is not complete") from None
    if len(name) > _MAX_NAME or not name.isprintable():
        raise _bad(file, f"it holds a tensor called {shown(name)}")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise _bad(file, f"{name!r} has the unknown dtype {shown(dtype)}")
    if not all(type(n) is int and n >= 0 for n in (*shape, start, end)):
        raise _bad(file, f"{name!r} has a shape or an offset that is no whole number")
    if end < start or data_start + end > size:
        raise _bad(file, f"{name!r} ends at byte {data_start + end:,} in a file of {size:,}")
    if math.prod(shape) * _BITS[dtype] != (end - start) * 8:
        raise _bad(file, f"{name!r} of shape {shown(list(shape), 200)} and dtype {dtype} has {end - start:,} bytes")
    return StoredTensor(name, dtype, shape, file, data_start + start, data_start + end)


def _bad(file: Path, why: str) -> ModelError:
    return ModelError(
        f"The weight file {file.name} is damaged: {why}.",
        remedy="It was probably cut short: copy or download it again.",
    )


def _no_weights(directory: Path) -> ModelError:
    pickles = sorted(
        p.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl") for p in directory.glob(pattern)
    )
    if pickles:
        return ModelError(
            f"{directory.name} holds its weights only as pickle ({pickles[0]}), which can run code when opened; "
            "the lab reads safetensors only.",
            remedy="Convert it first: model.save_pretrained(directory) writes safetensors.",
        )
    return ModelError(
        f"{directory.name} holds no weights: neither model.safetensors nor {_INDEX}.",
        remedy="Point to a directory that save_pretrained() wrote.",
    )
