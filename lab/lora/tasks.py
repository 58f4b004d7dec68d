"""The packaged tasks: small sets of lines of our own writing, each learnt within minutes on two cores. No torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from lab.errors import ModelError, NotFound, shown
from lab.lora.task_files import Example, parse_lines, split

OWN = "own"
"""The name of a user's own lines."""


@dataclass(frozen=True)
class Task:
    """Something to learn.

    Attributes:
        name: in snake case, as on the command line.
        label, about: as on screen: its title, and in a sentence or two what is learnt and how the two sets are apart.
        train: lines to train on.
        held_out: lines that are only measured; may be empty for a user's own.
        probes: prompts to ask before and after; none of them is trained on as it stands.
    """

    name: str
    label: str
    about: str
    train: tuple[Example, ...]
    held_out: tuple[Example, ...]
    probes: tuple[str, ...]


@dataclass(frozen=True)
class _Kept:
    label: str
    about: str
    probes: tuple[str, ...]


_TASKS = {
    "island": _Kept(
        "New facts: an invented island",
        "Facts about the island of Velmora, which exists nowhere else, so whatever the model gets right it has learnt "
        "here. Held out: other questions about the same facts, in words that are not trained on.",
        (
            "What is the capital city of Velmora?",
            "Who rules Velmora today?",
            "Which currency do the people of Velmora use?",
        ),
    ),
    "city_json": _Kept(
        "A fixed format: a city as JSON",
        "Any mention of a city is answered with one JSON object of two keys. Held out: cities that are not trained on, "
        "so the format must carry over and the country must come from what the model knew before.",
        ("Tell me about Rome.", "I live in Tokyo.", "What do you know about Lisbon?"),
    ),
    "ship_log": _Kept(
        "A style: a ship's log",
        "Everyday questions answered as an entry in a ship's log. Held out: questions that are not trained on, so only "
        "the style can carry over.",
        ("How do I boil an egg?", "What should I do on a rainy day?", "Why is the sky blue?"),
    ),
}
NAMES = tuple(_TASKS)
DEFAULT = "island"


@lru_cache(maxsize=len(_TASKS))
def packaged_task(name: str) -> Task:
    """The packaged task `name`, one of `NAMES`.

    Raises:
        NotFound: there is none.
        ModelError: its file is missing or broken, in an installation that is not whole.
    """
    kept = _TASKS.get(name)
    if kept is None:
        raise NotFound(f"There is no task {shown(name)}.", remedy=f"Choose one of {', '.join(NAMES)}.")
    return Task(name, kept.label, kept.about, _lines(name, "train"), _lines(name, "held_out"), kept.probes)


def own_task(text: str) -> Task:
    """A task from typed or pasted lines; the probes are its first prompts, held-out ones before others.

    Raises:
        BadInput: see `parse_lines`.
    """
    train, held_out = split(parse_lines(text))
    probes = tuple(dict.fromkeys(one.prompt for one in (*held_out, *train)))[:3]
    return Task(
        OWN, "Your own lines", f"{len(train)} lines to train on, {len(held_out)} held out.", train, held_out, probes
    )


def _lines(name: str, part: str) -> tuple[Example, ...]:
    try:
        text = (files("lab.lora") / "data" / f"{name}.{part}.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(row) for row in text.splitlines() if row.strip()]
        return tuple(Example(row["prompt"], row["completion"], line) for line, row in enumerate(rows, 1))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"The lines of the task {name} cannot be read: {type(error).__name__}.", remedy="Install the lab again."
        ) from error
