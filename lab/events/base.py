"""The base of all events and the register of their names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

_types: dict[str, type[Event]] = {}


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened in a run. Subclasses are frozen dataclasses; fields name their units.

    The name on the wire is the class name in snake case.
    """

    event: ClassVar[str] = "event"

    def __init_subclass__(cls) -> None:
        cls.event = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
        if cls.event in _types:
            raise TypeError(f"two event classes are called {cls.event!r}")
        _types[cls.event] = cls


def event_types() -> dict[str, type[Event]]:
    """All event classes known to this process, by their name on the wire."""
    return dict(_types)
