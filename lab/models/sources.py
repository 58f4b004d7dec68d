"""From what a person writes to a directory that can be loaded."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from lab import paths
from lab.errors import ModelError, shown
from lab.events import ModelFacts
from lab.models import hub, packaged
from lab.models.atomic import ProgressCallback, build_directory, silent
from lab.models.convert import convert_gguf, file_sha256
from lab.models.disk import require_disk
from lab.models.gguf_facts import facts_of_header
from lab.models.gguf_header import read_gguf_header
from lab.models.manifest import FORMAT, is_whole, read_manifest
from lab.models.memory import require_memory

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_CONVERTED = re.compile(r"gguf-[0-9a-f]{16}")
_HOW = (
    f"Ask for {' or '.join(packaged.PACKAGES)}, a directory in transformers format, a GGUF file, "
    "or a hub id such as HuggingFaceTB/SmolLM2-135M."
)


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    Attributes:
        kind: "packaged", "directory", "gguf" or "hub".
        directory: the directory to load, None while it has to be fetched or converted first.
        file: the GGUF file, if it is one.
    """

    id: str
    kind: str
    directory: Path | None
    file: Path | None = None


def locate(model_id: str) -> Source:
    """Find what `model_id` names. Fetches and converts nothing.

    Raises:
        ModelError: nothing has that name.
    """
    text = model_id.strip()
    if not text or "\0" in text or len(text) > 4096:
        raise ModelError(f"{model_id[:80]!r} names no model.", remedy=_HOW)
    if text in packaged.PACKAGES:
        package = packaged.PACKAGES[text]
        here = packaged.is_present(package)
        return Source(text, "packaged", packaged.directory_of(package) if here else None)
    if _CONVERTED.fullmatch(text) and is_whole(converted := _models() / f"{text}-v{FORMAT}"):
        return Source(text, "gguf", converted)
    try:
        path = Path(text).expanduser()
        if path.name in ("", ".."):  # ".", "..": errors name a directory, so it needs a name
            path = path.resolve()
        if path.is_dir():
            return Source(text, "directory", path)
        if path.is_file():
            if path.suffix.lower() != ".gguf" and not _is_gguf(path):
                raise ModelError(f"{path.name} is a file but not a GGUF file.", remedy=_HOW)
            return Source(text, "gguf", None, path)
    except (OSError, RuntimeError) as error:  # RuntimeError: a "~name" of nobody here
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"{shown(text, 200)} cannot be read: {reason}.", remedy="Check the path.") from None
    if _HUB_ID.fullmatch(text) and not text.lower().endswith(".gguf"):
        return Source(text, "hub", hub.local_snapshot(text))
    if os.sep in text or "/" in text or text.startswith(("~", ".")) or text.lower().endswith(".gguf"):
        raise ModelError(f"There is no directory or file {text[:200]!r}.", remedy="Check the path. " + _HOW)
    raise ModelError(f"There is no model called {text[:80]!r}.", remedy=_HOW)


def prepare(source: Source, progress: ProgressCallback = silent) -> Source:
    """`source` with a directory that can be loaded: fetched, converted or taken from the cache.

    Raises:
        ModelError: it cannot be fetched or converted.
        NotEnoughMemory: it cannot be converted in the memory that is free.
    """
    if source.directory is not None:
        return source
    if source.kind == "packaged":
        return replace(source, directory=packaged.prepare(packaged.PACKAGES[source.id], progress))
    if source.kind == "hub":
        return replace(source, directory=hub.fetch(source.id, progress))
    if source.file is None:
        raise ModelError(f"{source.id!r} has nothing to load.", remedy=_HOW)
    return replace(source, directory=_converted(source.file, progress))


def known_facts(source: Source) -> ModelFacts:
    """The facts of a model that is not ready to load yet, as far as they are known.

    Raises:
        ModelError: nothing is known before it is fetched, or the GGUF file is damaged.
    """
    if source.kind == "packaged":
        return packaged.known_facts(packaged.PACKAGES[source.id])
    if source.file is not None:
        return facts_of_header(read_gguf_header(source.file), model_id=source.id, source="gguf", present=False)
    raise ModelError(
        f"{source.id} is not on this machine, so its facts are not known yet.",
        remedy=f"Fetch it first: lab models {source.id} --fetch",
    )


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def converted_gguf_ids() -> list[str]:
    """The names of the GGUF files that were converted before, in order of name."""
    try:
        directories = sorted(_models().glob(f"gguf-*-v{FORMAT}"))
    except OSError:
        return []
    return [d.name.removesuffix(f"-v{FORMAT}") for d in directories if is_whole(d)]


def _converted(file: Path, progress: ProgressCallback) -> Path:
    header = read_gguf_header(file)  # a damaged file is refused before it is hashed
    digest = _remembered_sha256(file, progress)
    directory = paths.models_dir() / f"gguf-{digest[:16]}-v{FORMAT}"

    def is_this(path: Path) -> bool:
        manifest = read_manifest(path)
        return manifest is not None and manifest.source_sha256 == digest and is_whole(path)

    def build(target: Path) -> None:
        # Unpacking holds the fp32 weights once and a copy of the largest parts.
        require_memory(file.name, header.elements, "float32", "cpu")
        require_disk(file.name, 4 * header.elements)
        convert_gguf(
            file,
            target,
            name=str(header.metadata.get("general.name") or file.stem),
            source=file.name,
            source_sha256=digest,
            progress=progress,
        )

    return build_directory(directory, build, is_complete=is_this, progress=progress)


def _remembered_sha256(file: Path, progress: ProgressCallback) -> str:
    """The file's sha256, remembered by path, size and time of change: a large file takes seconds to read."""
    stat = file.stat()
    key = hashlib.sha256(f"{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}".encode()).hexdigest()
    remembered = paths.cache_dir() / "hashes" / key
    if remembered.is_file():
        text = remembered.read_text(encoding="ascii", errors="replace").strip()
        if re.fullmatch(r"[0-9a-f]{64}", text):
            return text
    digest = file_sha256(file, progress)
    remembered.parent.mkdir(exist_ok=True)
    remembered.write_text(digest, encoding="ascii")
    return digest


def _models() -> Path:
    return paths.cache_location() / "models"
