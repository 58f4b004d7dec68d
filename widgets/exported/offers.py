"""What a visitor can do to a view whose answer Python makes: the messages that are rehearsed for an exported page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from widgets.view import View, clean

MOST_VALUES = 64
"""Values of one field of a form that are rehearsed; a finer slider is locked in the file."""
KEPT_IN_LAB = "Only in the lab: this page is a file."
FIELDS = ("index", "node", "round", "row", "step", "dropped", "id", "expanded")
"""What tells one message of a type from another, in the order in which `exported.js` writes them."""


@dataclass(frozen=True)
class Offer:
    """Messages of one kind that a view can send.

    Attributes:
        kind: of the messages; for a form "values." and the field's name. "hover" lasts as long as the pointer stays.
        messages: by key, see `key_of`.
        off: the message that takes it back.
    """

    kind: str
    messages: Mapping[str, dict[str, Any]]
    off: dict[str, Any]

    @property
    def passing(self) -> bool:
        """Whether it ends by itself."""
        return self.kind == "hover"

    @property
    def of_form(self) -> bool:
        """Whether it is a field of a form."""
        return self.kind.startswith("values.")


def key_of(message: Mapping[str, Any]) -> str:
    """How the page finds a message's answer: its fields as compact JSON."""
    return json.dumps([message.get(name) for name in FIELDS], separators=(",", ":"), ensure_ascii=False)


def offers(view: View) -> list[Offer]:
    """All that this view offers in its present state."""
    make = _OFFERS.get(view.module)
    return [offer for offer in make(view) if offer.messages] if make else []


def _offer(kind: str, options: list[dict[str, Any]], off: dict[str, Any]) -> Offer:
    messages = [{"type": kind, **option} for option in options]
    return Offer(kind, {key_of(m): m for m in messages}, {"type": kind, **off})


def _pointed(options: list[dict[str, Any]], nothing: dict[str, Any]) -> Iterator[Offer]:
    for kind in ("hover", "lock"):
        yield _offer(kind, options, nothing)


def _player(view: View) -> Iterator[Offer]:
    yield _offer("step", [{"step": step} for step in range(view.state["available"])], {"step": view.state["step"]})


def _strip(view: View) -> Iterator[Offer]:
    start = view.state["start"]
    yield from _pointed([{"index": start + i} for i in range(len(view.state["tokens"]))], {"index": None})


def _pairs(view: View) -> Iterator[Offer]:
    yield from _pointed([{"index": i} for i in range(len(view.state["pairs"]))], {"index": None})


def _tree(view: View) -> Iterator[Offer]:
    count = len(getattr(view, "tree", {}).get("nodes", ()))
    yield from _pointed([{"node": node} for node in range(count)], {"node": None})


def _shelf(view: View) -> Iterator[Offer]:
    rows = [row["node"] for row in (*view.state["rows"], *view.state["pushed"])]
    yield from _pointed([{"node": node} for node in rows], {"node": None})


def _rounds(view: View) -> Iterator[Offer]:
    spots = [{"round": r["index"], "row": token["row"]} for r in view.state["rounds"] for token in r["tokens"]]
    yield from _pointed(spots, {"round": None, "row": None})
    yield _folds(view)


def _folds(view: View) -> Offer:
    return _offer("expand", [{"expanded": True}, {"expanded": False}], {"expanded": view.state["expanded"]})


def _histograms(view: View) -> Iterator[Offer]:
    yield _offer("row", [{"id": row["id"]} for row in view.state["rows"]], {"id": view.state["selected"]})


def _layers(view: View) -> Iterator[Offer]:
    selected = view.state["selected"]
    options = [{"index": layer["index"]} for layer in view.state["layers"]]
    yield _offer("layer", options, {"index": selected})


def _legend(view: View) -> Iterator[Offer]:
    dropped = view.state["dropped"]
    yield _offer("dropped", [{"dropped": True}, {"dropped": False}], {"dropped": dropped})


def _form(view: View) -> Iterator[Offer]:
    for name, field in view.state["schema"].get("properties", {}).items():
        now = view.state["values"].get(name, field.get("default"))
        messages = {value_key(value): _value(name, value) for value in values_of(field)}
        yield Offer(f"values.{name}", messages, _value(name, now))


def _value(name: str, value: Any) -> dict[str, Any]:
    return {"type": "values", "changed": {name: value}, "values": {name: value}, "invalid": []}


def value_key(value: Any) -> str:
    """How the page finds the answer to a value of a form: numbers to six digits, whole ones without a point."""
    if isinstance(value, float):
        value = int(value) if value.is_integer() else float(f"{value:.6g}")
    return json.dumps([value], separators=(",", ":"), ensure_ascii=False)


def values_of(field: Mapping[str, Any]) -> list[Any]:
    """The values of a form's field where they are few, else none."""
    found: list[Any] = []
    if field.get("disabled"):
        return []
    if isinstance(field.get("enum"), list):
        found = clean(field["enum"])
    elif field.get("type") == "boolean":
        found = [False, True]
    elif field.get("hint") == "slider" and {"minimum", "maximum"} <= field.keys():
        low, step = field["minimum"], field.get("step") or (1 if field["type"] == "integer" else 0.01)
        count = round((field["maximum"] - low) / step) + 1
        found = [low + i * step for i in range(count)] if count <= MOST_VALUES else []
    return found if 1 < len(found) <= MOST_VALUES else []


_OFFERS: dict[str, Callable[[View], Iterator[Offer]]] = {
    "player": _player,
    "token_strip": _strip,
    "word_pairs": _pairs,
    "beam_tree": _tree,
    "beam_shelf": _shelf,
    "round_rows": _rounds,
    "histogram_rows": _histograms,
    "layer_strip": _layers,
    "kind_legend": _legend,
    "controls": _form,
}
