"""Command-line options from a parameter class's JSON schema. Nothing is defined twice; no torch."""

from __future__ import annotations

import enum
import inspect
import json
from typing import Annotated, Any

import typer

from lab.errors import BadInput

TYPES: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}


def option_name(field: str) -> str:
    """ "max_new_tokens" as "--max-new-tokens"."""
    return "--" + field.replace("_", "-")


def options(schema: dict[str, Any]) -> list[inspect.Parameter]:
    """One keyword-only parameter for each field of the schema; its value is None where the user gave none."""
    return [_parameter(name, _resolved(spec, schema)) for name, spec in schema["properties"].items()]


def _parameter(name: str, spec: dict[str, Any]) -> inspect.Parameter:
    flag = option_name(name)
    kind, metavar = _type(name, spec)
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    option = typer.Option(*names, help=_help(spec), show_default=False, metavar=metavar)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _type(name: str, spec: dict[str, Any]) -> tuple[Any, str | None]:
    if "enum" in spec:
        return enum.Enum(name, {str(v): str(v) for v in spec["enum"]}, type=str), None
    kind = spec.get("type")
    if kind == "array":
        inner = str(spec.get("items", {}).get("type", "text")).upper()
        return list[str], f"{inner}[,{inner}...]"
    if kind in TYPES:
        return TYPES[kind], None
    return str, "JSON"


def _help(spec: dict[str, Any]) -> str:
    text = str(spec.get("description", spec.get("title", ""))).rstrip()
    limits = _limits(spec)
    when = spec.get("when")
    if isinstance(when, dict):
        needs = ", ".join(
            f"{option_name(k)}" if v is True else f"{option_name(k)} {_any_of(v)}" for k, v in when.items()
        )
        text += f" Matters with {needs}."
    default = spec.get("default")
    shown = "none" if default in (None, [], "") else json.dumps(default, ensure_ascii=False)
    return f"{text} {limits} Default: {shown}.".replace("  ", " ").strip()


def _any_of(wanted: Any) -> str:
    return " or ".join(map(str, wanted)) if isinstance(wanted, list) else str(wanted)


def _limits(spec: dict[str, Any]) -> str:
    unit = f" {spec['unit']}" if "unit" in spec else ""
    low, high = spec.get("minimum"), spec.get("maximum")
    over, under = spec.get("exclusiveMinimum"), spec.get("exclusiveMaximum")
    parts = [
        f"at least {low}" if low is not None else "",
        f"above {over}" if over is not None else "",
        f"at most {high}" if high is not None else "",
        f"below {under}" if under is not None else "",
        f"at most {spec['maxLength']:,} characters" if "maxLength" in spec else "",
        f"at most {spec['maxItems']} of them" if "maxItems" in spec else "",
    ]
    said = ", ".join(part for part in parts if part)
    return f"({said}{unit})" if said else ""


def _resolved(spec: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    reference = spec.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        target = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
        return {**target, **{k: v for k, v in spec.items() if k != "$ref"}}
    return spec


def collected(schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What the user gave, as values for the parameter class; what was not given is left out.

    Raises:
        BadInput: a list or JSON value that cannot be read.
    """
    values: dict[str, Any] = {}
    for name, spec in schema["properties"].items():
        value = given.get(name)
        if value is None or value == []:
            continue
        values[name] = _value(name, _resolved(spec, schema), value)
    return values


def _value(name: str, spec: dict[str, Any], value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if spec.get("type") == "array":
        kind = TYPES.get(str(spec.get("items", {}).get("type")), str)
        return [_item(name, kind, part.strip()) for text in value for part in str(text).split(",") if part.strip()]
    if spec.get("type") in TYPES:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise BadInput(f"{option_name(name)} is {value!r}, which is not JSON.", remedy="Write a JSON value.") from None


def _item(name: str, kind: type, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise BadInput(
            f"{option_name(name)} has {text!r}, which is not a {kind.__name__}.",
            remedy=f"Write them as {option_name(name)} 0,3,7.",
        ) from None
