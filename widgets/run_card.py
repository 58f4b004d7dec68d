"""The run card behind a button."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from lab.events import RunCard
from widgets.python_code import python_code
from widgets.view import View


class RunCardButton(View):
    """Opens a dialog with everything that decides the run's result, to read and to copy as JSON or as Python."""

    module: ClassVar[str] = "run_card"
    defaults: ClassVar[Mapping[str, Any]] = {"rows": [], "card": {}, "python": "", "title": "Run card"}

    def __init__(self) -> None:
        super().__init__()

    def show(self, card: RunCard | None) -> None:
        """Show a card; None locks the button."""
        if card is None:
            self._put(rows=[], card={}, python="")
        else:
            self._put(rows=rows(card), card={**asdict(card), "key": card.key()}, python=python_code(card))


def rows(card: RunCard) -> list[list[str]]:
    """The card as (name, value) texts: who ran, where, with which parameters, with which versions."""
    return [
        ["experiment", card.experiment],
        ["model", card.model],
        ["weights, sha256", card.weight_hash],
        ["dtype", card.dtype],
        ["device", card.device],
        ["attention", card.attention],
        ["threads", str(card.threads)],
        *([name, _text(value)] for name, value in card.params.items()),
        *([f"version of {name}", version] for name, version in sorted(card.versions.items())),
        ["card, sha256", card.key()],
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
