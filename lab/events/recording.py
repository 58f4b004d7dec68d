"""A run on disk: spooled as NDJSON while it lives, packed into one safetensors file at its end.

Layout of the file: `events` is a uint8 tensor holding NDJSON in which every array is replaced by
`{"$tensor": NAME}`; the arrays are tensors of those names; `inspections` is a uint8 tensor holding
NDJSON of the questions asked of the run and their answers. The metadata carry the format's name,
its version and the run card. Nothing in it can run code.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from stat import S_ISREG
from types import TracebackType
from typing import Any

import numpy as np
import safetensors.numpy
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open

from lab.errors import RecordingError
from lab.events.array import ArrayData
from lab.events.base import Event
from lab.events.codec import decode_event, decode_line, encode_event, encode_line, from_json, strict_loads, to_json
from lab.events.run import RunCancelled, RunStarted, is_final

FORMAT = "inference-lab-recording"
VERSION = 1
MAX_BYTES = 512 * 1024 * 1024
AGAIN = "Make the recording again."


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """One question asked of a run, and its answer."""

    name: str
    params: dict[str, Any]
    answer: dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """A whole run: its events in order, and what was asked of it.

    Raises:
        RecordingError: the events do not begin with `run_started` or do not end with one final event.
    """

    events: tuple[Event, ...]
    inspections: tuple[Inspection, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.events or not isinstance(self.events[0], RunStarted):
            raise RecordingError("A recording begins with run_started; this one does not.", remedy=AGAIN)
        if not is_final(self.events[-1]) or any(is_final(e) for e in self.events[:-1]):
            raise RecordingError("A recording ends with exactly one final event; this one does not.", remedy=AGAIN)

    @property
    def started(self) -> RunStarted:
        """The first event, with the run card."""
        first = self.events[0]
        if not isinstance(first, RunStarted):  # excluded by __post_init__
            raise RecordingError("A recording begins with run_started; this one does not.", remedy=AGAIN)
        return first

    def answer(self, name: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The recorded answer to a question, or None if it was never asked."""
        for item in self.inspections:
            if item.name == name and item.params == params:
                return item.answer
        return None

    def save(self, path: Path) -> None:
        """Write to `path` atomically: it holds the whole recording or what it held before."""
        tensors: dict[str, np.ndarray[Any, Any]] = {}

        def name_of(array: ArrayData) -> dict[str, str]:
            name = f"array.{len(tensors):06d}"
            tensors[name] = array.numpy()
            return {"$tensor": name}

        lines = [json.dumps(encode_event(e, name_of), separators=(",", ":"), allow_nan=False) for e in self.events]
        asked = [json.dumps(to_json(i), separators=(",", ":"), allow_nan=False) for i in self.inspections]
        tensors["events"] = np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)
        tensors["inspections"] = np.frombuffer("\n".join(asked).encode(), dtype=np.uint8)
        card = json.dumps(to_json(self.started.card), sort_keys=True)
        metadata = {"format": FORMAT, "version": str(VERSION), "card": card}
        atomic_write(path, safetensors.numpy.save(tensors, metadata))

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read a recording.

        Raises:
            RecordingError: missing, larger than 512 MiB, truncated, foreign, or of a newer version.
        """
        try:
            stat = path.stat()
        except OSError:
            raise RecordingError(f"No recording at {str(path)!r}.", remedy="Check the path.") from None
        if not S_ISREG(stat.st_mode):  # opening a pipe would wait for its writer
            raise RecordingError(f"{str(path)!r} is not a file.", remedy="Check the path.")
        size = stat.st_size
        if size > MAX_BYTES:
            raise RecordingError(
                f"{path.name!r} has {size:,} bytes; a recording has at most {MAX_BYTES:,}.",
                remedy="Is it a model's weights?",
            )
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                _check_format(path.name, metadata)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError, TypeError, MemoryError) as error:
            raise RecordingError(
                f"{path.name!r} is damaged or not a recording: {error}.",
                remedy="A whole recording comes from `lab run EXPERIMENT --out FILE` or the page's Export.",
            ) from None
        return cls(tuple(_events(tensors)), tuple(_inspections(tensors)))


def _check_format(name: str, metadata: dict[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise RecordingError(
            f"{name!r} is a safetensors file but not a lab recording.",
            remedy="A recording comes from `lab run EXPERIMENT --out FILE` or the page's Export.",
        )
    version = metadata.get("version", "")
    if not version.isdecimal() or not 1 <= int(version) <= VERSION:
        raise RecordingError(
            f"{name!r} has recording version {version!r}; this lab reads up to {VERSION}.",
            remedy="Update the lab.",
        )


def _lines(tensors: dict[str, np.ndarray[Any, Any]], name: str) -> list[Any]:
    tensor = tensors.get(name)
    if tensor is None or tensor.dtype != np.uint8 or tensor.ndim != 1:
        raise RecordingError(f"The recording's {name!r} are missing or damaged.", remedy=AGAIN)
    try:
        return [strict_loads(line) for line in tensor.tobytes().split(b"\n") if line]
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"The recording's {name!r} are damaged: {error}.", remedy=AGAIN) from None


def _events(tensors: dict[str, np.ndarray[Any, Any]]) -> Iterable[Event]:
    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {"$tensor"}:
                tensor = tensors.get(str(value["$tensor"]))
                if tensor is None:
                    raise RecordingError(f"The recording lacks its array {value['$tensor']!r}.", remedy=AGAIN)
                try:
                    return ArrayData.of(tensor, str(tensor.dtype))
                except ValueError as error:
                    raise RecordingError(f"The recording's arrays are damaged: {error}.", remedy=AGAIN) from None
            return {k: fill(v) for k, v in value.items()}
        if isinstance(value, list):
            return [fill(v) for v in value]
        return value

    for body in _lines(tensors, "events"):
        try:
            filled = fill(body)
        except RecursionError:
            raise RecordingError("The recording's events are nested too deeply.", remedy=AGAIN) from None
        yield decode_event(filled)


def _inspections(tensors: dict[str, np.ndarray[Any, Any]]) -> Iterable[Inspection]:
    for body in _lines(tensors, "inspections"):
        yield decode_inspection(body)


@cache
def _inspection() -> TypeAdapter[Inspection]:
    return TypeAdapter(Inspection)


def decode_inspection(body: Any) -> Inspection:
    """The inspection that `body`, plain JSON data, says.

    Raises:
        RecordingError: fields that do not fit.
    """
    try:
        return _inspection().validate_python(from_json(body), strict=False)
    except (ValidationError, RecursionError):
        raise RecordingError("The recording's inspections are damaged.", remedy=AGAIN) from None


def atomic_write(path: Path, data: bytes) -> None:
    """Write `data` so that `path` never holds a part of it, and leave no rest behind on failure."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RecordingError(
            f"Cannot write {path.name!r}: {error.strerror or error}.",
            remedy="Check the folder, its permissions and the free space.",
        ) from None
    finally:
        with contextlib.suppress(OSError):  # a folder that takes no file lets none be removed either
            temporary.unlink(missing_ok=True)


class Spool:
    """A run's events on disk while it lives, one line an event, each flushed.

    Use as a context manager; leaving it by an exception keeps the file, so that `recover_spool` can
    still make a recording of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise RecordingError(
                f"Cannot write {path.name!r}: {error.strerror or error}.",
                remedy="Check the folder, its permissions and the free space.",
            ) from None

    def write(self, event: Event) -> None:
        """Append one event and hand it to the operating system."""
        try:
            self._file.write(encode_line(event))
            self._file.flush()
        except OSError as error:
            raise RecordingError(
                f"Cannot write {self.path.name!r}: {error.strerror or error}.", remedy="Free some space."
            ) from None

    def pack(self, out: Path, inspections: Iterable[Inspection] = ()) -> Recording:
        """Close the spool, write the recording to `out` and remove the spool.

        Raises:
            RecordingError: the run has no end yet, or the disk is full; the spool stays.
        """
        self._close()
        recording = Recording(tuple(_spooled(self.path)), tuple(inspections))
        recording.save(out)
        self.path.unlink()
        return recording

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        try:
            self._file.close()  # writes what an earlier full disk held back
        except OSError as error:
            raise RecordingError(
                f"Cannot write {self.path.name!r}: {error.strerror or error}.", remedy="Free some space."
            ) from None


def _spooled(path: Path) -> Iterable[Event]:
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):  # the process died while writing it
                return
            yield decode_line(line)


KILLED = "the process was killed; recovered from its spool"
NOT_WRITTEN_ON = "its events could not be written on (is the disk full?); recovered from its spool"


def recover_spool(path: Path, reason: str = KILLED) -> Recording:
    """The recording of a run that did not pack its own: what its spool holds, ended as cancelled if it has no end.

    Args:
        reason: why it has none.

    Raises:
        RecordingError: no spool there, or it holds not even the run's start.
    """
    try:
        events = list(_spooled(path))
    except OSError:
        raise RecordingError(f"No spool at {str(path)!r}.", remedy="Check the path.") from None
    if not events:
        raise RecordingError(f"{path.name!r} holds no events: the run died before its start.")
    if not is_final(events[-1]):
        events.append(RunCancelled(reason=reason))
    return Recording(tuple(events))
