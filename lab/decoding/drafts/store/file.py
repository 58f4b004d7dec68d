"""A store on disk: one safetensors file, written whole or not at all, mapped and not read when it is used."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from lab import paths
from lab.decoding.drafts.store.suffix_array import MAX_TOKENS, IntArray
from lab.errors import BadInput, LabError, shown
from lab.models.weights import read_header

FORMAT = 1
_DIGEST_BYTES = 64 << 20
"""Files up to this size are checked by their digest when opened; larger ones at a few hundred places."""
_SPOTS = 512
_LEFTOVER_S = 3600.0


@dataclass(frozen=True)
class StoreFacts:
    """What the file says of itself.

    Attributes:
        name: of the texts, for a person.
        text_sha256: see `lab.decoding.drafts.store.texts.text_hash`.
        tokenizer: the name of the model whose tokenizer made the tokens.
        tokenizer_sha256: see `lab.decoding.drafts.store.encode.tokenizer_hash`.
        tokens: all of them, borders between documents included.
        vocab: token ids are below it.
        content_sha256: over the two arrays.
    """

    name: str
    text_sha256: str
    tokenizer: str
    tokenizer_sha256: str
    documents: int
    characters: int
    tokens: int
    vocab: int
    content_sha256: str
    format: int = FORMAT


def stores_dir() -> Path:
    """Where stores lie, created when missing.

    Raises:
        BadInput: the cache directory cannot be written.
    """
    folder = paths.cache_dir() / "stores"
    folder.mkdir(exist_ok=True)
    return folder


def file_name(text_sha256: str, tokenizer_sha256: str) -> str:
    """The file of a store: the same for the same text and tokenizer."""
    key = hashlib.sha256(f"{FORMAT}\0{text_sha256}\0{tokenizer_sha256}".encode()).hexdigest()
    return f"store-{key[:24]}.safetensors"


def content_hash(ids: IntArray, array: IntArray) -> str:
    """sha256 over the bytes of both arrays, hex."""
    digest = hashlib.sha256()
    for part in (ids, array):
        digest.update(np.ascontiguousarray(part, dtype="<i4").data)
    return digest.hexdigest()


def save(file: Path, ids: IntArray, array: IntArray, facts: StoreFacts) -> None:
    """Write a store under a name of its own and rename it: a reader finds it whole or not there.

    Several builders may do so at once; the last one's file stays, and those of the others were equal.

    Raises:
        BadInput: the directory cannot be written, or the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    partial: Path | None = None
    try:
        _clear_leftovers(file.parent)
        descriptor, name = tempfile.mkstemp(prefix=".partial-", suffix=".safetensors", dir=file.parent)
        os.close(descriptor)
        partial = Path(name)
        metadata = {key: str(value) for key, value in asdict(facts).items()}
        save_file({"ids": ids, "array": array}, str(partial), metadata=metadata)
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())  # else a power cut may leave the name on an empty file
        partial.replace(file)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)[:200]
        raise BadInput(
            f"The store cannot be saved: {reason}.", remedy="Check the space of the cache directory."
        ) from None
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def load(file: Path) -> tuple[IntArray, IntArray, StoreFacts]:
    """Map a store's file: ids, places in order, facts. The arrays are read-only and read as they are used.

    Raises:
        BadInput: it is no store, of another version, cut short or damaged; the reason is named.
    """
    from safetensors import SafetensorError, safe_open

    try:
        tensors = {tensor.name: tensor for tensor in read_header(file)}
        with safe_open(str(file), framework="np") as opened:
            metadata = opened.metadata()
    except (LabError, OSError, SafetensorError) as error:
        said = getattr(error, "message", None) or getattr(error, "strerror", None) or str(error)[:200]
        raise _damaged(file, said.rpartition("is damaged: ")[2].rstrip(".")) from None
    facts = _facts(file, metadata)
    mapped: list[IntArray] = []
    for name in ("ids", "array"):
        tensor = tensors.get(name)
        if tensor is None or tensor.dtype != "I32" or tensor.shape != (facts.tokens,):
            raise _damaged(file, f"it holds no {name} of {facts.tokens:,} tokens")
        whole = np.memmap(file, dtype="<i4", mode="r", offset=tensor.start, shape=tensor.shape)
        mapped.append(whole.view(np.ndarray))
    _check(file, mapped[0], mapped[1], facts)
    return mapped[0], mapped[1], facts


def _facts(file: Path, metadata: dict[str, str] | None) -> StoreFacts:
    given = metadata or {}
    values: dict[str, Any] = {}
    for item in fields(StoreFacts):
        text = given.get(item.name)
        if text is None:
            raise _damaged(file, f"it does not say its {item.name}: it is no store")
        values[item.name] = text
        if item.type == "int":
            if not (text.isascii() and text.isdigit() and len(text) < 12):
                raise _damaged(file, f"its {item.name} is {shown(text)}")
            values[item.name] = int(text)
    facts = StoreFacts(**values)
    if facts.format != FORMAT:
        raise _damaged(file, f"its version is {facts.format}, and this lab reads {FORMAT}")
    if not 1 <= facts.tokens <= MAX_TOKENS:
        raise _damaged(file, f"it claims {facts.tokens:,} tokens, and a store has 1 to {MAX_TOKENS:,}")
    return facts


def _check(file: Path, ids: IntArray, array: IntArray, facts: StoreFacts) -> None:
    if ids.nbytes + array.nbytes <= _DIGEST_BYTES:
        if content_hash(ids, array) != facts.content_sha256:
            raise _damaged(file, "its content is not what was written")
        return
    spots = np.linspace(0, facts.tokens - 2, _SPOTS).astype(np.int64)
    for before, after in zip(array[spots].tolist(), array[spots + 1].tolist(), strict=True):
        inside = 0 <= before < facts.tokens and 0 <= after < facts.tokens
        if not inside or ids[before : before + 8].tolist() > ids[after : after + 8].tolist():
            raise _damaged(file, "its places are not in order")
    if not bool(((ids[spots] >= -1) & (ids[spots] < facts.vocab)).all()):
        raise _damaged(file, "it holds tokens outside its vocabulary")


def _damaged(file: Path, why: str) -> BadInput:
    return BadInput(f"The store {file.name} is damaged: {why}.", remedy="Delete it; it is built again.")


def _clear_leftovers(folder: Path) -> None:
    """Remove what builders killed more than an hour ago left."""
    for path in folder.glob(".partial-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _LEFTOVER_S:
                path.unlink()
