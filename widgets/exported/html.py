"""One HTML file of a run: its page's styles, views, BokehJS and JSON, all inline, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import escape
from typing import Any

from lab.errors import BadInput
from lab.events import Recording
from lab.strings import ENGLISH, Strings, strings
from widgets import assets
from widgets.exported.offers import KEPT_IN_LAB, key_of, value_key
from widgets.exported.rehearsal import ABSENT, Place, Rehearsal, Slot, as_json, look, rehearse
from widgets.exported.still import FILES, Snapshot, StillPage
from widgets.exporting import make_export
from widgets.format import format_bytes
from widgets.plot import bokehjs_source

LIMIT_BYTES = 40 * 1024 * 1024
"""Of one file: what browsers open at once and mail takes with difficulty."""


def export_html(recording: Recording, *, limit: int = LIMIT_BYTES, language: str = ENGLISH) -> bytes:
    """The page of a run as one file for any browser, the same bytes for the same recording.

    Args:
        limit: the file's largest size, bytes.
        language: of the page's title and lesson.

    Raises:
        BadInput: it would be larger, or there is no such language.
        NotFound: the recording's experiment has no page.
    """
    words = strings(language)
    page = StillPage(recording, words)
    data = written(page, rehearse(page), recording, words)
    if len(data) > limit:
        raise BadInput(
            f"The page of this run would be a file of {format_bytes(len(data))}; at most {format_bytes(limit)}.",
            remedy="Export the recording, which `lab replay --open` shows, or make a shorter run.",
        )
    return data


def written(page: StillPage, rehearsal: Rehearsal, recording: Recording, words: Strings) -> bytes:
    """The file of a page and its rehearsal."""
    offered = in_a_file(rehearsal)
    saved = page_json(offered, _files(page, recording))
    title = words(f"{page.experiment.name}.title")
    modules = {shown["module"] for shown in offered.base.values() if "module" in shown}
    return document(title, saved, modules, words).encode("utf-8", "replace")


def _files(page: StillPage, recording: Recording) -> dict[str, dict[str, str]]:
    """The run's data and the run itself, for the page's export menu."""
    found = {}
    for what in FILES:
        name, data, mime = make_export(what, page.experiment.name, recording, page.views.tables())
        data = _ordered(data) if what == "recording" else data
        found[what] = {"name": name, "mime": mime, "base64": base64.b64encode(data).decode("ascii")}
    return found


def _ordered(data: bytes) -> bytes:
    """A safetensors file with its header's keys in order: the library writes its metadata in a random one."""
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def in_a_file(rehearsal: Rehearsal) -> Rehearsal:
    """Without what only the lab can do: buttons that ask for something, fields of forms that nothing answers."""
    base = dict(rehearsal.base)
    for number, shown in rehearsal.base.items():
        if shown.get("module") == "action_row":
            base[number] = {**shown, "display": "none"}
    for number, name in rehearsal.unmoved:
        shown = base[number]
        schema = shown["state"]["schema"]
        field = schema["properties"][name]
        if not field.get("disabled"):
            properties = {**schema["properties"], name: {**field, "disabled": KEPT_IN_LAB}}
            state = {**shown["state"], "schema": {**schema, "properties": properties}}
            base[number] = {**shown, "state": state}
    return replace(rehearsal, base=base)


def page_json(rehearsal: Rehearsal, files: dict[str, dict[str, str]]) -> str:
    """What `exported.js` draws the page from. Equal values are written once, beginnings of lists as a length."""
    values: list[Any] = []
    known: dict[str, int] = {}

    def index(place: Place, value: Any) -> int:
        packed = _packed(look(rehearsal.base, place), value)
        text = as_json(packed)
        if text not in known:
            known[text] = len(values)
            values.append(packed)
        return known[text]

    slots = [
        {
            "view": slot.view,
            "kind": slot.offer.kind,
            "places": [list(place) for place in slot.places],
            "options": {
                key: [index(place, value) for place, value in zip(slot.places, option, strict=True)]
                for key, option in slot.options.items()
            },
            "base": _base_key(slot),
        }
        for slot in rehearsal.slots
    ]
    nodes = renumbered(rehearsal.base)
    return as_json(
        {"root": 0, "nodes": nodes, "slots": slots, "together": rehearsal.together, "values": values, "files": files}
    )


def _base_key(slot: Slot) -> str:
    """The option that shows the page as at first, "" where none does."""
    off = slot.offer.off
    return value_key(next(iter(off["changed"].values()))) if off["type"] == "values" else key_of(off)


def _packed(first: Any, value: Any) -> Any:
    """The value as it is written: the beginning of a longer list at first as its length."""
    if value is ABSENT:
        return ABSENT
    if (
        isinstance(value, list)
        and isinstance(first, list)
        and 0 < len(value) <= len(first)
        and first[: len(value)] == value
    ):
        return {"$": "head", "n": len(value)}
    return value


def renumbered(base: Snapshot) -> list[Any]:
    """The nodes with Bokeh's models named by their place: Bokeh counts them through the process's whole life."""
    nodes = []
    for number in range(len(base)):
        node = base[number]
        item = node.get("traits", {}).get("item")
        if item is not None:
            names: dict[str, str] = {}
            node = {**node, "traits": {**node["traits"], "item": _named(item, f"v{number}-", names)}}
        nodes.append(node)
    return nodes


def _named(value: Any, prefix: str, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: names.setdefault(item, f"{prefix}{len(names)}")
            if key in ("id", "root_id") and isinstance(item, str)
            else _named(item, prefix, names)
            for key, item in value.items()
        }
    return [_named(item, prefix, names) for item in value] if isinstance(value, list) else value


def document(title: str, saved: str, modules: set[str], words: Strings) -> str:
    """The HTML. A policy in its head forbids every request, and every script but its own two."""
    scripts = [bokehjs_source(), _script(sorted(modules))]
    allowed = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    # Bokeh makes functions of its tick formatters' texts, which are the lab's own.
    policy = f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
    styles = ("tokens", "base", "page", *sorted(modules))
    css = "\n".join(assets.read(f"{name}.css") for name in styles)
    for text in (*scripts, css):
        if re.search(r"</(script|style)", text, re.IGNORECASE):
            raise ValueError("a file of the front end would end its own element")
    bodies = "\n".join(f"<script>{script}</script>" for script in scripts)
    return f"""<!doctype html>
<html lang="{words.language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} · Inference Lab</title>
<link rel="icon" href="data:,">
<style>{css}</style>
</head>
<body class="lab-body">
<noscript><p class="lab-notice">{escape(words("page.needs_script"))}</p></noscript>
<script type="application/json" id="lab-saved">{in_script(saved)}</script>
{bodies}
</body>
</html>
"""


def in_script(text: str) -> str:
    """JSON that can stand in a script element: nothing in it begins a tag or a comment."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _script(modules: list[str]) -> str:
    """One classic script, for pages from disk may not import: shared helpers once, each module in its own scope."""
    own = [f"modules[{as_json(name)}] = (() => {{\n{assets.classic(name)}\n}})();" for name in modules]
    parts = (assets.read("dom.js"), assets.classic_stand_in(), "const modules = {};", *own, assets.read("exported.js"))
    return "\n".join(("(() => {", *parts, "start(modules);", "})();"))
