"""What differs between two run cards: parameters, model, and what the run was made on. Nothing else is a difference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.errors import NotFound
from lab.events import RunCard
from lab.experiments.registry import get_experiment
from widgets.comparison.told import layer_words
from widgets.format import NOTHING

MOST = 160
"""Characters of a value in a table; of longer ones the part where they differ is shown."""
_LEAD = 40
_MISSING = object()


@dataclass(frozen=True)
class Difference:
    """One thing that the cards say otherwise.

    Attributes:
        name: as in the card: a parameter's name, "model", "dtype", ...
        title: the same for a person.
        a, b: both values as text; long ones from a little before the place where they differ.
    """

    name: str
    title: str
    a: str
    b: str


def differences(a: RunCard, b: RunCard) -> tuple[Difference, ...]:
    """Parameters in the order of the form, then the model, then what both ran on."""
    fields = _fields(a.experiment)
    found = []
    names = dict.fromkeys((*fields, *sorted({*a.params, *b.params} - fields.keys())))
    for name in names:
        default = fields.get(name, {}).get("default", _MISSING)  # what an older lab did that had no such parameter
        values = a.params.get(name, default), b.params.get(name, default)
        if values[0] != values[1] or type(values[0]) is not type(values[1]):
            field = fields.get(name, {})
            texts = (_text(name, value, field) for value in values)
            found.append(Difference(name, str(field.get("title", name)), *_cut(*texts)))
    found += [Difference(name, title, *_cut(x, y)) for name, title, x, y in _made_on(a, b) if x != y]
    return tuple(found)


def _made_on(a: RunCard, b: RunCard) -> Iterator[tuple[str, str, str, str]]:
    yield "model", "Model", a.model, b.model
    if a.model == b.model:  # other models have other weights
        yield "weight_hash", "Weights, sha256", a.weight_hash[:16], b.weight_hash[:16]
    yield "dtype", "Number format", a.dtype, b.dtype
    yield "device", "Device", a.device, b.device
    yield "attention", "Attention", a.attention, b.attention
    yield "threads", "Threads", str(a.threads), str(b.threads)
    for path in sorted(a.files.keys() & b.files.keys()):  # a path that only one reads differs as a parameter
        yield "files", f"Content of {path}", a.files[path][:16], b.files[path][:16]


def version_words(a: RunCard, b: RunCard) -> str:
    """Libraries of which the runs had different versions, in words; "" if there are none."""
    names = sorted({*a.versions, *b.versions})
    other = [
        f"{name} {a.versions.get(name, NOTHING)} and {b.versions.get(name, NOTHING)}"
        for name in names
        if a.versions.get(name) != b.versions.get(name)
    ]
    return f"Made with different versions (A and B): {', '.join(other)}." if other else ""


def _fields(experiment: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        fields: Mapping[str, Mapping[str, Any]] = get_experiment(experiment).info().schema["properties"]
    except NotFound:
        return {}
    return fields


def setting(card: RunCard, name: str) -> str:
    """A parameter as the form writes it."""
    return _text(name, card.params.get(name, _MISSING), _fields(card.experiment).get(name, {}))


def _text(name: str, value: Any, field: Mapping[str, Any]) -> str:
    """A value as the form writes it."""
    if value is _MISSING:
        return NOTHING
    options = [False, True] if field.get("type") == "boolean" else field.get("enum", [])
    labels = field.get("labels", [])
    if isinstance(value, str | bool) and value in options and len(labels) == len(options):
        return str(labels[options.index(value)])
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in ("", []):
        return "(none)"
    if isinstance(value, list | tuple):
        items = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in value]
        return layer_words(items) if name.endswith("layers") else ", ".join(items)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(a: str, b: str) -> tuple[str, str]:
    if max(len(a), len(b)) <= MOST:
        return a, b
    first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, first - _LEAD)
    return _part(a, start), _part(b, start)


def _part(text: str, start: int) -> str:
    end = start + MOST
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
