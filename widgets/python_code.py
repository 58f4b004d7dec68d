"""A run card as Python that makes the run again, for a notebook or a script."""

from __future__ import annotations

import math
from typing import Any

from lab.errors import NotFound
from lab.events import RunCard
from lab.experiments.registry import get_experiment

_WIDTH = 76
_CODE = (
    "{notes}\nimport torch\n"
    """
from lab.backend.local import LocalBackend
from lab.backend.protocol import RunRequest

torch.set_num_threads({threads})
request = RunRequest(
    experiment={experiment!r},
    model={model!r},
    params={params},
    dtype={dtype!r},
    device={device!r},
    fresh=True,
)
backend = LocalBackend()
events = list(backend.run(request))
backend.close()
print(events[-1])
"""
)


def python_code(card: RunCard) -> str:
    """Code that makes the run of `card`: its parameters that differ from their defaults, and what it ran on.

    The same versions, threads and device give the same tokens; the first lines name them. Text of a visitor or of a
    model stands in Python's own quotes.
    """
    return _CODE.format(
        notes="\n".join(f"# {line}" for line in _notes(card)),
        experiment=card.experiment,
        model=card.model,
        params=literal(changed(card), 4),
        threads=card.threads,
        dtype=card.dtype,
        device="cuda" if card.device.startswith("cuda") else "cpu",
    )


def changed(card: RunCard) -> dict[str, Any]:
    """The parameters that are not as they are by default; all of them where the experiment is not known here."""
    try:
        defaults = get_experiment(card.experiment).params().model_dump(mode="json")
    except NotFound:
        defaults = {}
    return {name: value for name, value in card.params.items() if name not in defaults or defaults[name] != value}


def _notes(card: RunCard) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(card.versions.items()))
    notes = [
        f"Run card {card.key()[:16]}: weights {card.weight_hash[:16]}, attention {card.attention},",
        f"on {card.device}.",
        f"Made with {versions}." if versions else "Versions are not known.",
    ]
    notes += [f"It reads {path!r} (sha256 {digest[:16]})." for path, digest in card.files.items()]
    return [ascii(note)[1:-1] for note in notes]  # a name may hold a line's end


def literal(value: Any, indent: int = 0) -> str:
    """A JSON value as a Python literal; on several lines where one would be too long."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    whole = repr(value)
    if not value or not isinstance(value, dict | list):
        return whole
    if len(whole) + indent <= _WIDTH and "inf" not in whole and "nan" not in whole:
        return whole
    pad = " " * (indent + 4)
    if isinstance(value, dict):
        rows = [f"{pad}{key!r}: {literal(item, indent + 4)}," for key, item in value.items()]
        return "\n".join(("{", *rows, " " * indent + "}"))
    return "\n".join(("[", *(f"{pad}{literal(item, indent + 4)}," for item in value), " " * indent + "]"))
