"""Sections and views of a page without a kernel: a desk that nobody answers at, and what is drawn below a widget."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, TypeVar

from lab.events import Event
from widgets.experiment import Desk
from widgets.run_state import RunState
from widgets.view import View

R = TypeVar("R", bound=RunState)
T = TypeVar("T")


def quiet_desk() -> Desk:
    """A desk whose questions are never answered."""

    def ask(*_args: Any, **_keywords: Any) -> None:
        return None

    return Desk(ask=ask, touch=lambda: None, lock=threading.RLock())


def fold_all(make: type[R], events: Iterable[Event]) -> R:
    """A state after these events."""
    state = make()
    for event in events:
        state.fold(event)
    return state


def drawn(kind: type[T], state: Any, *, upto: int | None = None, live: bool = False) -> T:
    """A section, built and drawn once; `upto` None is the newest step."""
    made: Any = kind(quiet_desk())  # type: ignore[call-arg]
    made.render(state, state.steps - 1 if upto is None else upto, live=live)
    found: T = made
    return found


def send(view: View, **message: Any) -> None:
    """A message from the page."""
    view._receive(view, message, None)


def walk(widget: Any) -> list[View]:
    """All views below a widget, from top to bottom."""
    if isinstance(widget, View):
        return [widget]
    return [view for child in widget.children for view in walk(child)]
