"""A name to keep something under, with a button: what the page checks of the name before it asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.experiments.lora.places import MAX_NAME, NAME_RULE, is_name
from widgets.controls import Controls
from widgets.token_text import plain_text


def name_form(title: str, example: str, typed: Callable[[str], None]) -> Controls:
    """A form of one line, its placeholder an example of a name; `typed(name)` is called with what was typed, spaces
    around it off."""
    field: dict[str, Any] = {
        "type": "string",
        "title": title,
        "default": "",
        "maxLength": MAX_NAME,
        "hint": "line",
        "placeholder": f"a name, e.g. {example}",
        "group": "main",
    }

    def heard(values: dict[str, Any]) -> None:
        if isinstance(values.get("name"), str):
            typed(values["name"].strip())

    form = Controls(schema={"properties": {"name": field}}, values={"name": ""})
    form.add_class("lab-inline")
    form.on_values(heard)
    return form


def show_form(form: Controls, name: str, wrong: str, *, ready: bool) -> None:
    """Show the name, what is wrong with it, and whether it can be typed."""
    form.update(values={"name": name}, disabled=not ready, errors={"name": plain_text(wrong)} if wrong else {})


def why_no_name(name: str) -> str:
    """What is wrong with a name; "" if nothing is."""
    if not name:
        return "Give it a name first."
    if len(name) > MAX_NAME:
        return f"{len(name)} characters; at most {MAX_NAME}."
    if not is_name(name):
        return f"L{NAME_RULE[1:]}."
    return ""
