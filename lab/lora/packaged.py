"""The trained adapter that comes with the lab, so that before-and-after works without training."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from lab.errors import ModelError
from lab.lora.adapter import Adapter
from lab.lora.peft_files import read_adapter

NAME, TASK = "velmora", "island"
"""Of the adapter, and of the task that it was trained on."""
CARD = "card.json"
"""What was trained, on what, by what, and what came of it; README.md beside it says the same in words."""


def directory() -> Path:
    """Where the packaged adapter lies, in peft's format."""
    return Path(str(files("lab.lora") / "adapters" / NAME))


def packaged_adapter() -> Adapter:
    """The packaged adapter, for SmolLM2-135M-Instruct.

    Raises:
        ModelError: its files are missing or damaged, in an installation that is not whole.
    """
    return read_adapter(directory(), name=NAME)


def packaged_card() -> dict[str, Any]:
    """What `lab.lora.make_adapter` wrote of it.

    Raises:
        ModelError: it is missing or damaged.
    """
    try:
        card: dict[str, Any] = json.loads((directory() / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError("The packaged adapter's card cannot be read.", remedy="Install the lab again.") from error
    return card
