"""Events as JSON objects and lines.

An event is one JSON object whose `event` names its class in snake case. JSON has no infinities:
they travel as `{"$float": "Infinity"}`, `{"$float": "-Infinity"}` and `{"$float": "NaN"}`, so that no
text can be taken for one. A lone surrogate in a text travels as its JSON escape.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab.errors import RecordingError
from lab.events.array import ArrayData
from lab.events.base import Event, event_types

_FLOAT = "$float"
_NON_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def to_json(value: Any, array: Callable[[ArrayData], Any] = ArrayData.to_json) -> Any:
    """`value` as plain JSON data: dataclasses to objects, tuples to lists, non-finite floats to objects.

    Args:
        array: how to write an array; recordings put a tensor's name instead.
    """
    if isinstance(value, ArrayData):
        return array(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {_FLOAT: "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if value is None or isinstance(value, str | int | bool):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name), array) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(k): to_json(v, array) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v, array) for v in value]
    raise TypeError(f"{type(value).__name__} does not travel; use numbers, text, lists, dicts or ArrayData")


def from_json(value: Any) -> Any:
    """Undo the encoding of non-finite floats anywhere inside plain JSON data."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT} and value[_FLOAT] in _NON_FINITE:
            return _NON_FINITE[value[_FLOAT]]
        return {k: from_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [from_json(v) for v in value]
    return value


def encode_event(event: Event, array: Callable[[ArrayData], Any] = ArrayData.to_json) -> dict[str, Any]:
    """One event as a JSON object."""
    body = to_json(event, array)
    return {"event": event.event, **body}


def encode_line(event: Event) -> str:
    """One event as a line of NDJSON, newline included."""
    return json.dumps(encode_event(event), separators=(",", ":"), allow_nan=False) + "\n"


@cache
def _adapter(name: str) -> TypeAdapter[Event]:
    return TypeAdapter(event_types()[name])


def decode_event(body: Any) -> Event:
    """The event that `body`, a JSON object, says.

    Raises:
        RecordingError: not an object, an unknown event, or fields that do not fit.
    """
    if not isinstance(body, dict) or not isinstance(body.get("event"), str):
        raise RecordingError("This is not an event: it has no name under 'event'.", remedy="Is it a lab recording?")
    fields = from_json(body)
    name = fields.pop("event")
    if name not in event_types():
        raise RecordingError(f"Unknown event {name!r}.", remedy="It may come from a newer version of the lab.")
    try:
        return _adapter(name).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordingError(f"Event {name!r} is damaged at {where!r}: {first['msg']}.") from None


def decode_line(line: str | bytes) -> Event:
    """The event on one line of NDJSON.

    Raises:
        RecordingError: not JSON, or not an event.
    """
    try:
        body = json.loads(line)
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"This line is not JSON: {error}.") from None
    return decode_event(body)
