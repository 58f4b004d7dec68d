"""Events as JSON objects and lines.

An event is one JSON object whose `event` names its class in snake case. JSON has no infinities:
they travel as `{"$float": "Infinity"}`, `{"$float": "-Infinity"}` and `{"$float": "NaN"}`, so that no
text can be taken for one; a key of a dict that begins with "$" gets a second one in front, so that no
dict can be taken for one either. A lone surrogate in a text travels as its JSON escape.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab.errors import RecordingError, shown
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
        return {_escaped(k): to_json(v, array) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v, array) for v in value]
    raise TypeError(f"{type(value).__name__} does not travel; use numbers, text, lists, dicts or ArrayData")


def from_json(value: Any) -> Any:
    """Undo the encoding of non-finite floats anywhere inside plain JSON data."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT} and isinstance(value[_FLOAT], str) and value[_FLOAT] in _NON_FINITE:
            return _NON_FINITE[value[_FLOAT]]
        return {k.removeprefix("$") if k.startswith("$$") else k: from_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [from_json(v) for v in value]
    return value


def _escaped(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a dict key of type {type(key).__name__} does not travel; use text")
    return f"${key}" if key.startswith("$") else key


def strict_loads(text: str | bytes) -> Any:
    """JSON as the standard has it: the bare words NaN and Infinity are refused.

    Raises:
        ValueError: not JSON (also text that is no UTF-8, or too long a number); RecursionError: nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


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
    try:
        fields = from_json(body)
    except RecursionError:
        raise RecordingError("This event is nested too deeply.", remedy="Is it a lab recording?") from None
    name = fields.pop("event")
    if name not in event_types():
        raise RecordingError(f"Unknown event {shown(name)}.", remedy="It may come from a newer version of the lab.")
    try:
        return _adapter(name).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordingError(
            f"Event {name!r} is damaged at {where!r}: {first['msg']}.", remedy="Make the recording again."
        ) from None


def decode_line(line: str | bytes) -> Event:
    """The event on one line of NDJSON.

    Raises:
        RecordingError: not JSON, or not an event.
    """
    try:
        body = strict_loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"This line is not JSON: {error}.", remedy="Is it a lab recording?") from None
    return decode_event(body)
