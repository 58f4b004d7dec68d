"""Buttons and links that a picture offers: what each will do is its label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from widgets.view import Message, View


@dataclass(frozen=True)
class Action:
    """One button.

    Attributes:
        id: names it in messages.
        label: what it does, as text.
        title: more about it, shown when pointed at.
        href: a page that it opens, in a tab of its own; nobody is told then. "" for a button.
    """

    id: str
    label: str
    title: str = ""
    href: str = ""


class ActionRow(View):
    """Buttons side by side; none of them: nothing is there.

    Args:
        label: the group's name for those who cannot see it.
    """

    module: ClassVar[str] = "action_row"
    defaults: ClassVar[Mapping[str, Any]] = {"label": "", "actions": []}

    def __init__(self, *, label: str) -> None:
        super().__init__(label=label)

    def show(self, actions: Sequence[Action]) -> None:
        """Show these buttons."""
        self._put(actions=[asdict(action) for action in actions])

    def on_action(self, callback: Callable[[str], None]) -> None:
        """Call `callback(id)` when a button that is shown is pressed."""

        def heard(message: Message) -> None:
            if any(action["id"] == message.get("id") for action in self.state["actions"]):
                callback(str(message["id"]))

        self._listen("action", heard)
