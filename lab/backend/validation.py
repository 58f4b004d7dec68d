"""Bad parameters in words: the field, the value, the limit and what to do. No torch here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lab.errors import BadInput, shown

Model = TypeVar("Model", bound=BaseModel)


def validated(cls: type[Model], values: Any) -> Model:
    """`values` as parameters of class `cls`.

    Raises:
        BadInput: the first thing that is wrong, in words.
    """
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        raise explained(error, cls.model_fields) from None


def explained(error: ValidationError, known: Iterable[str] = ()) -> BadInput:
    """What pydantic found wrong, as an error for a person. `known`: the names that would have been right."""
    details = error.errors(include_url=False)
    message, remedy = _words(details[0], list(known))
    if len(details) > 1:
        remedy = f"{remedy} {len(details) - 1} more {'value is' if len(details) == 2 else 'values are'} wrong."
    return BadInput(message, remedy=remedy)


def _words(detail: ErrorDetails, known: list[str]) -> tuple[str, str]:
    name = ".".join(_part(part) for part in detail["loc"]) or "The request"
    value, kind, limits = detail["input"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(_part(detail["loc"][-1]), known, n=1)
        return f"There is no parameter {name!r}.", f"Did you mean {near[0]!r}?" if near else _one_of(known)
    if kind == "missing":
        return f"{name} is missing.", "Give it."
    if kind in ("string_too_long", "too_long"):
        what = "characters" if kind == "string_too_long" else "items"
        limit = limits["max_length"]
        return f"{name} has {len(value):,} {what}; the limit is {limit:,}.", "Shorten it."
    if kind in ("string_too_short", "too_short"):
        what = "character" if kind == "string_too_short" else "item"
        least = limits["min_length"]
        return f"{name} has {len(value)} {what}s; it needs at least {least}.", f"Give at least {least} {what}."
    if kind == "string_unicode" and isinstance(value, str):
        where = next(i for i, character in enumerate(value) if "\ud800" <= character <= "\udfff")
        return f"{name} has half a character at position {where} (a lone surrogate).", "Remove it."
    given = shown(value)
    for key, says, do in (
        ("le", "the limit is", "Use at most"),
        ("lt", "it must be below", "Use less than"),
        ("ge", "it must be at least", "Use at least"),
        ("gt", "it must be above", "Use more than"),
    ):
        if kind in ("less_than_equal", "less_than", "greater_than_equal", "greater_than") and key in limits:
            return f"{name} is {given}; {says} {limits[key]}.", f"{do} {limits[key]}."
    if kind in ("literal_error", "enum"):
        return f"{name} is {given}, which is not a choice.", f"Choose {limits.get('expected', 'another')}."
    text = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"{name} is {given}; it should be {text}." if text != detail["msg"] and kind != "value_error" else (
        f"{name} is {given}: {text}."
    ), "Correct it."


def _part(part: int | str, limit: int = 60) -> str:
    """One step of a field's place. A name that the caller made up may be of any length."""
    text = str(part)
    return text if len(text) <= limit else f"{text[:limit]}…"


def _one_of(known: list[str]) -> str:
    return f"The names are {', '.join(known)}." if known else "Leave it out."
