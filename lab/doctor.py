"""What is missing or mismatched on this machine, and how to mend it. Each check is one small function."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from lab import paths
from lab.errors import LabError
from lab.settings import DEFAULT_PORT, lock_path

PROJECT = "inference-lab"
Level = Literal["ok", "warning", "problem"]
_MIB = 1 << 20
_FIRST_START_BYTES = 1_200 * _MIB
_LATER_BYTES = 200 * _MIB
# The Python package, its front end's directory below labextensions, and whether both carry the same version.
FRONT_ENDS = (
    ("jupyterlab_widgets", "@jupyter-widgets/jupyterlab-manager", False),
    ("anywidget", "anywidget", True),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the report.

    Attributes:
        level: "problem" means that the lab will not work as it should.
        found: what is there, in words.
        remedy: what to do, "" when nothing.
    """

    check: str
    level: Level
    found: str
    remedy: str = ""


def examine(port: int = DEFAULT_PORT) -> list[Row]:
    """Run all checks. One that fails by itself becomes a row."""
    checks: list[tuple[str, Callable[[], list[Row]]]] = [
        ("python", check_python),
        ("packages", check_packages),
        ("torch", check_torch),
        ("widgets", check_front_ends),
        ("kernel", check_kernel),
        ("cache", check_cache),
        ("disk", check_disk),
        ("model", check_model),
        ("memory", check_memory),
        ("running lab", check_running),
        ("port", lambda: check_port(port)),
        ("browser for tests", check_chromium),
    ]
    return [row for name, check in checks for row in _guarded(name, check)]


def _guarded(name: str, check: Callable[[], list[Row]]) -> list[Row]:
    try:
        return check()
    except LabError as error:
        return [Row(check=name, level="problem", found=error.message, remedy=error.remedy)]
    except Exception as error:  # noqa: BLE001 - a doctor that falls over helps nobody
        return [Row(check=name, level="warning", found=f"could not be examined: {type(error).__name__}: {error}")]


def check_python() -> list[Row]:
    """The interpreter against what the project requires."""
    from packaging.specifiers import SpecifierSet

    version = ".".join(map(str, sys.version_info[:3]))
    required = metadata.metadata(PROJECT).json.get("requires_python") or ""
    if required and version not in SpecifierSet(str(required)):
        found = f"Python {version}, but {required} is required"
        return [Row(check="python", level="problem", found=found, remedy="Make the environment with a newer Python.")]
    return [Row(check="python", level="ok", found=f"Python {version} in {sys.prefix}")]


def check_packages(requirements: list[str] | None = None) -> list[Row]:
    """Installed versions against what the project requires.

    Args:
        requirements: as in pyproject; the project's own if left out.
    """
    from packaging.requirements import Requirement

    if requirements is None:
        requirements = metadata.requires(PROJECT) or []
    bad, count = [], 0
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            bad.append(f"{requirement.name} is missing (needed: {requirement.specifier or 'any version'})")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            bad.append(f"{requirement.name} is {version}, needed is {requirement.specifier}")
    if bad:
        remedy = "Run make lab again, or: python -m pip install -e . -c constraints.txt"
        return [Row(check="packages", level="problem", found="; ".join(bad), remedy=remedy)]
    return [Row(check="packages", level="ok", found=f"all {count} have versions that fit")]


def check_torch() -> list[Row]:
    """Which torch this is, and whether it fits the hardware."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return [
            Row(check="torch", level="problem", found=f"torch cannot be loaded: {error}", remedy="Run make lab again.")
        ]
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    found = f"torch {torch.__version__} ({build} build), {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        return [Row(check="torch", level="ok", found=f"{found}, {torch.cuda.get_device_name(0)}")]
    if shutil.which("nvidia-smi") is not None:
        remedy = "Install a CUDA build of torch and keep it with: make lab TORCH=system"
        return [Row(check="torch", level="warning", found=f"{found}; the NVIDIA GPU here is not used", remedy=remedy)]
    return [Row(check="torch", level="ok", found=found)]


def check_front_ends(roots: list[Path] | None = None) -> list[Row]:
    """The JavaScript halves of the widget packages: installed beside this Python, of the same version.

    Args:
        roots: directories named labextensions, in order of search; Jupyter's own if left out.
    """
    if roots is None:
        from jupyter_core.paths import jupyter_path

        roots = [Path(p) for p in jupyter_path("labextensions")]
    return [_front_end(package, folder, same, roots) for package, folder, same in FRONT_ENDS]


def _front_end(package: str, folder: str, same: bool, roots: list[Path]) -> Row:
    check = f"widget front end {package}"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return Row(check=check, level="problem", found="the Python package is missing", remedy="Run make lab again.")
    repair = f"python -m pip install --force-reinstall --no-deps {package}=={version}"
    place = next((root for root in roots if (root / folder / "package.json").is_file()), None)
    if place is None:
        return Row(check=check, level="problem", found="its JavaScript is not installed for Jupyter", remedy=repair)
    try:
        front = str(json.loads((place / folder / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return Row(check=check, level="problem", found=f"its package.json in {place} is broken", remedy=repair)
    if same and front.split(".")[0] != version.split(".")[0]:
        found = f"JavaScript {front} in {place} does not fit Python {version}"
        return Row(check=check, level="problem", found=found, remedy=f"Remove {place / folder}, then: {repair}")
    if not place.is_relative_to(sys.prefix):
        found = f"JavaScript {front} comes from {place}, not from this environment"
        return Row(check=check, level="warning", found=found, remedy=f"Remove {place / folder} if widgets stay empty.")
    return Row(check=check, level="ok", found=f"{version}, JavaScript {front}")


def check_kernel() -> list[Row]:
    """Whether notebooks start this Python and not another one."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    repair = f"{sys.executable} -m ipykernel install --sys-prefix --name python3"
    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv
    except NoSuchKernel:
        return [Row(check="kernel", level="problem", found="there is no kernel called python3", remedy=repair)]
    return [kernel_row(command, repair)]


def kernel_row(command: list[str], repair: str) -> Row:
    """Compare a kernel's command with this interpreter."""
    program = command[0] if command else ""
    own_names = {"python", f"python{sys.version_info[0]}", "python{}.{}".format(*sys.version_info[:2])}
    # Jupyter replaces these names by the server's own interpreter.
    if program in own_names or _same_python(program):
        return Row(check="kernel", level="ok", found="notebooks run in this environment")
    found = f"notebooks would run {program or 'nothing'}, but the lab is installed for {sys.executable}"
    return Row(check="kernel", level="problem", found=found, remedy=repair)


def _same_python(program: str) -> bool:
    # Two virtual environments may link to one interpreter: the directory decides, not the file linked to.
    resolved = shutil.which(program) or program
    return Path(resolved).absolute().parent.resolve() == Path(sys.executable).absolute().parent.resolve()


def check_cache() -> list[Row]:
    """Whether the cache directory can be written."""
    place = paths.cache_dir()
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        found = f"{place} cannot be written: {error.strerror}"
        remedy = f"Make it writable, or set {paths.CACHE_VARIABLE} to a directory that is."
        return [Row(check="cache", level="problem", found=found, remedy=remedy)]
    return [Row(check="cache", level="ok", found=f"{place} can be written")]


def check_disk() -> list[Row]:
    """Free disk for what the lab still has to fetch."""
    from lab.models.packaged import SMOLLM2, is_present

    needed = _LATER_BYTES if is_present(SMOLLM2) else _FIRST_START_BYTES
    free = shutil.disk_usage(paths.cache_dir()).free
    found = f"{free / _MIB:,.0f} MiB free, about {needed / _MIB:,.0f} MiB needed"
    if free < needed:
        remedy = f"Free some, or set {paths.CACHE_VARIABLE} to another disk."
        return [Row(check="disk", level="problem", found=found, remedy=remedy)]
    return [Row(check="disk", level="ok", found=found)]


def check_model() -> list[Row]:
    """Whether the default model is here and whole."""
    from lab.models.packaged import SMOLLM2, directory_of, is_present

    if is_present(SMOLLM2):
        return [Row(check="model", level="ok", found=f"{SMOLLM2.name} is here")]
    if directory_of(SMOLLM2).exists():
        found = f"{SMOLLM2.name} is here but not whole; it will be made again"
    else:
        found = f"{SMOLLM2.name} is not fetched yet"
    return [Row(check="model", level="warning", found=found, remedy=f"lab models {SMOLLM2.id} --fetch")]


def check_memory() -> list[Row]:
    """Free memory for the default model."""
    from lab.models.memory import free_bytes, needed_bytes
    from lab.models.packaged import SMOLLM2

    needed, free = needed_bytes(SMOLLM2.parameters, "float32"), free_bytes()
    found = f"{free / _MIB:,.0f} MiB free, {SMOLLM2.name} needs about {needed / _MIB:,.0f} MiB"
    if free < needed:
        return [Row(check="memory", level="problem", found=found, remedy="Close other programs.")]
    return [Row(check="memory", level="ok", found=found)]


def check_running() -> list[Row]:
    """Whether a lab runs already."""
    from lab.backend.lockfile import read_lock

    running = read_lock(lock_path())
    if running is None:
        return [Row(check="running lab", level="ok", found="none")]
    where = running.page or running.url
    return [Row(check="running lab", level="ok", found=f"process {running.pid} at {where}; notebooks join it")]


def check_port(port: int = DEFAULT_PORT) -> list[Row]:
    """Whether the page's port is free."""
    from lab.backend.lockfile import read_lock

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if os.name == "posix":
            # As servers do: a connection that just closed must not look like a port in use.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            running = read_lock(lock_path())
            if running is not None and f":{port}" in running.page:
                return [Row(check="port", level="ok", found=f"{port} is used by the running lab")]
            remedy = "End that program, or choose another port: lab up --port N"
            return [Row(check="port", level="problem", found=f"{port} is used by another program", remedy=remedy)]
    return [Row(check="port", level="ok", found=f"{port} is free")]


def check_chromium() -> list[Row]:
    """A browser for the browser tests. Nobody else needs one of these."""
    found = next(_browsers(), None)
    if found is None:
        remedy = "python -m playwright install chromium, or your system's chromium package"
        return [Row(check="browser for tests", level="warning", found="no Chromium", remedy=remedy)]
    return [Row(check="browser for tests", level="ok", found=found)]


def _browsers() -> Iterator[str]:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        program = shutil.which(name)
        if program:
            yield program
    root = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    for pattern in ("chromium-*/chrome-*/chrome", "chromium-*/chrome-*/chrome.exe", "chromium-*/chrome-*/*.app"):
        yield from map(str, sorted(root.glob(pattern)))
