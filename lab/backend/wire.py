"""The protocol's requests and answers as JSON, for both ends of HTTP."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lab.backend.protocol import Health, InspectRequest, RunRequest
from lab.backend.validation import explained
from lab.errors import BY_CODE, BackendUnavailable, BadInput, Busy, LabError, shown
from lab.events import ModelFacts
from lab.events.codec import from_json, to_json
from lab.experiments.base import ExperimentInfo

T = TypeVar("T", RunRequest, InspectRequest)

RUN = TypeAdapter(RunRequest)
INSPECT = TypeAdapter(InspectRequest)
HEALTH = TypeAdapter(Health)
MODELS = TypeAdapter(list[ModelFacts])
EXPERIMENTS = TypeAdapter(list[ExperimentInfo])

HEARTBEAT = b"\n"
"""A blank line in a stream of events: nothing happened, the run lives. Readers skip it."""


def encode(value: Any) -> bytes:
    """Any dataclass, list or dict of the protocol as JSON."""
    return json.dumps(to_json(value), separators=(",", ":"), allow_nan=False).encode()


def decode(adapter: TypeAdapter[Any], body: bytes) -> Any:
    """An answer of the backend.

    Raises:
        BackendUnavailable: it is not what this version of the lab expects.
    """
    try:
        return adapter.validate_python(from_json(json.loads(body)))
    except (ValueError, RecursionError) as error:
        raise BackendUnavailable(
            f"The model process gave an answer that this lab does not understand ({type(error).__name__}).",
            remedy="Is it of the same version? Restart `lab up`.",
        ) from None


def parse_request(cls: type[T], body: bytes, max_depth: int) -> T:
    """A request's body as `cls`.

    Raises:
        BadInput: not JSON, nested too deeply, unknown or wrong fields.
    """
    deepest = depth(body)
    if deepest > max_depth:
        raise BadInput(
            f"The body is nested {deepest} levels deep; the limit is {max_depth}.", remedy="Send a flatter one."
        )
    try:
        plain = from_json(json.loads(body))
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"The body is not JSON: {error}.", remedy="Send one JSON object.") from None
    names = [f.name for f in dataclasses.fields(cls)]
    if not isinstance(plain, dict):
        raise BadInput(f"The body is a JSON {type(plain).__name__}.", remedy="Send one JSON object.")
    unknown = sorted(set(plain) - set(names))
    if unknown:
        raise BadInput(f"There is no field {shown(unknown[0])}.", remedy=f"The fields are {', '.join(names)}.")
    adapter: TypeAdapter[Any] = RUN if cls is RunRequest else INSPECT
    try:
        text = json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"The body has half a character (a lone surrogate, {error.object[error.start]!a}).", remedy="Remove it."
        ) from None
    try:
        # As JSON: strict then still takes an object for a dataclass and a list for a tuple.
        request: T = adapter.validate_json(text, strict=True)
    except ValidationError as error:
        raise explained(error, names) from None
    return request


def depth(body: bytes) -> int:
    """How deeply brackets nest in JSON text, those inside strings not counted."""
    level = deepest = 0
    in_string = escaped = False
    for byte in body:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x5B, 0x7B):
            level += 1
            deepest = max(deepest, level)
        elif byte in (0x5D, 0x7D):
            level -= 1
    return deepest


def encode_error(error: LabError) -> bytes:
    """The one shape of an error: {"code", "message", "remedy"}."""
    return encode({"code": error.code, "message": error.message, "remedy": error.remedy})


def decode_error(status: int, body: bytes, retry_after: str | None) -> LabError:
    """The error that the backend answered with."""
    try:
        plain = json.loads(body)
        code, message, remedy = str(plain["code"]), str(plain["message"]), str(plain["remedy"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return BackendUnavailable(
            f"The model process answered with status {status}.", remedy="Is there something else at this address?"
        )
    cls = BY_CODE.get(code, LabError)
    if issubclass(cls, Busy):
        seconds = int(retry_after) if retry_after is not None and retry_after.isdecimal() else 10
        return cls(message, remedy=remedy, retry_after_s=seconds)
    return cls(message, remedy=remedy)
