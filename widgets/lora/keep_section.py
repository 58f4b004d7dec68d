"""Keep it: the trained adapter under a name, in PEFT's format, for later runs and other tools."""

from __future__ import annotations

import re
from typing import Any

from widgets.action_row import Action, ActionRow
from widgets.controls import Controls
from widgets.experiment import Desk
from widgets.lora.state import LoraState
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.token_text import plain_text

MOST = 40
KEEP = Action("keep", "Keep", "Writes A and B and their settings to a folder of that name.")
COMPARE = "compare"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_FIELD: dict[str, Any] = {
    "type": "string",
    "title": "Keep as",
    "default": "",
    "maxLength": MOST,
    "hint": "line",
    "placeholder": "island-8",
    "group": "main",
}


class KeepSection(Section[LoraState]):
    """A name, a button, what became of it, and the way on to before and after.

    Attributes:
        name: as typed. kept: the name under which the adapter of this run lies; "" while it does not.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.name = self.kept = ""
        self._said = self._wrong = ""
        self._waiting = False
        self._turn = 0
        self._form = Controls(schema={"properties": {"name": _FIELD}}, values={"name": ""})
        self._form.add_class("lab-inline")
        self._form.on_values(self._typed)
        self._actions = ActionRow(label="The trained adapter")
        self._actions.on_action(self._act)
        self._words = Words(css_class="lab-caption")
        self.widget = section(
            heading(
                "Keep it?",
                "Written in PEFT's format on the machine that runs the model: other runs here and peft can load it.",
            ),
            self._form,
            self._actions,
            self._words,
        )

    @classmethod
    def present(cls, state: LoraState) -> bool:
        return state.trained is not None

    def reset(self) -> None:
        self.name = self.kept = self._said = self._wrong = ""
        self._waiting = False
        self._turn += 1

    def _typed(self, values: dict[str, Any]) -> None:
        if isinstance(values.get("name"), str):
            with self._desk.lock:
                self.name, self._wrong, self._said = values["name"].strip(), "", ""
            self._desk.touch()

    def _act(self, action: str) -> None:
        if action == COMPARE:
            if self.kept and self._desk.start is not None:
                self._desk.start({"task": "compare", "adapter": self.kept}, "")
            return
        with self._desk.lock:
            name, self._wrong, self._said = self.name, why_no_name(self.name), ""
            asks = action == KEEP.id and not self._wrong and not self._waiting
            self._waiting = self._waiting or asks
            turn = self._turn
        if asks:
            self._desk.ask("save", {"name": name}, lambda answer, why: self._saved(answer, why, turn), of_run=True)
        self._desk.touch()

    def _saved(self, answer: dict[str, Any] | None, why: str, turn: int) -> None:
        with self._desk.lock:
            if turn != self._turn:  # asked of the run before this one
                return
            self._waiting = False
            if answer is None:
                self._wrong = why or "It could not be kept."
            else:
                self.kept, self._said = str(answer.get("name", "")), str(answer.get("words", ""))
        self._desk.touch()

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto
        by_setting = state.param("save", "")
        if not self.kept and isinstance(by_setting, str) and by_setting and state.own is not None:
            self.kept = by_setting
            self._said = f"Kept as {by_setting}, as the run's settings asked."
        recorded = bool(state.started and state.started.recorded)
        ready = not recorded and not (live and state.end is None)
        self._form.update(
            values={"name": self.name},
            disabled=not ready,
            errors={"name": plain_text(self._wrong)} if self._wrong else {},
        )
        actions = [KEEP] if ready and not self._waiting else []
        if self.kept and not recorded and not live and self._desk.start is not None:
            actions.append(Action(COMPARE, f"Before and after with {plain_text(self.kept)}", "Starts a run."))
        self._actions.show(actions)
        self._words.say(("p", self._status(recorded=recorded, ready=ready)))

    def _status(self, *, recorded: bool, ready: bool) -> str:
        if recorded:
            return (
                "A recording has no adapter to keep. Give a name under “Keep as” in the controls and run: it is "
                "trained anew, and kept."
            )
        if self._waiting:
            return "It is being written."
        if self._said:
            return plain_text(self._said)
        return "" if ready else "Follows when the run has ended."


def why_no_name(name: str) -> str:
    """What is wrong with a name; "" if nothing is."""
    if not name:
        return "Give it a name first."
    if len(name) > MOST:
        return f"{len(name)} characters; at most {MOST}."
    if not _NAME.fullmatch(name):
        return "Letters, digits, - and _ only, a letter or a digit first."
    return ""
