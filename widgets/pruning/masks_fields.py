"""The form above the masks: which mask, beside which other one, in which colours, checked for which pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.experiments.pruning.choices import PATTERNS

ALONE = "alone"
COLOURS = {"mask": "mask", "value": "value"}
AXES = {"in": "inputs (right)", "out": "outputs (wrong)"}
DEFAULTS: dict[str, Any] = {"first": "", "second": "", "colour": "mask", "check": "none", "along": "in"}
"""Empty: the run's own method, and the first other one."""


def schema(methods: Sequence[tuple[str, str]], *, check: str) -> dict[str, Any]:
    """The fields for the methods at hand, as (name, label)."""
    names, labels = [name for name, _ in methods], [label for _, label in methods]
    own = {"default": names[0] if names else "", "group": "main", "type": "string"}
    fields: dict[str, Any] = {
        "first": {**own, "title": "Mask", "enum": names, "labels": labels, "hint": "select"},
        "second": {
            **own,
            "title": "Beside it",
            "enum": [ALONE, *names],
            "labels": ["nothing", *labels],
            "hint": "select",
        },
        "colour": _segmented("Colour", COLOURS),
        "check": {**_segmented("Check N:M", PATTERNS), "labels": ["no", *list(PATTERNS.values())[1:]]},
    }
    if check != "none":
        fields["along"] = _segmented("Groups along the", AXES)
    return {"properties": fields}


def _segmented(title: str, choices: Any) -> dict[str, Any]:
    names = list(choices)
    shown = {"enum": names, "labels": list(choices.values()), "default": names[0]}
    return {"type": "string", "title": title, **shown, "hint": "segmented", "group": "main"}
