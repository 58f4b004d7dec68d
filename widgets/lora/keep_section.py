"""Keep it: the trained adapter under a name, in PEFT's format, for later runs and other tools."""

from __future__ import annotations

from typing import Any

from widgets.action_row import Action, ActionRow
from widgets.experiment import Desk
from widgets.lora.named_form import name_form, show_form, why_no_name
from widgets.lora.state import LoraState, stopped_while_training
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.token_text import plain_text

KEEP = Action("keep", "Keep", "Writes A and B and their settings to a folder of that name.")
COMPARE = "compare"


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
        self._form = name_form("Keep it as", "island-8", self._typed)
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
        """Also of a run that was stopped while it trained: the best adapter so far is there."""
        return state.trained is not None or stopped_while_training(state)

    def reset(self) -> None:
        self.name = self.kept = self._said = self._wrong = ""
        self._waiting = False
        self._turn += 1

    def _typed(self, name: str) -> None:
        with self._desk.lock:
            self.name, self._wrong, self._said = name, "", ""
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
        if answer is not None:
            self._desk.renew()
        self._desk.touch()

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto
        recorded = bool(state.started and state.started.recorded)
        by_setting = state.param("save", "")
        if not self.kept and isinstance(by_setting, str) and by_setting and state.own is not None:
            self.kept = by_setting
            self._said = f"Kept as {by_setting}, as the run's settings asked."
            if not recorded:
                self._desk.renew()
        ready = not recorded and not (live and state.end is None)
        show_form(self._form, self.name, self._wrong, ready=ready)
        actions = [KEEP] if ready and not self._waiting else []
        if self.kept and not recorded and not live and self._desk.start is not None:
            actions.append(Action(COMPARE, f"Before and after with {plain_text(self.kept)}", "Starts a run."))
        self._actions.show(actions)
        self._words.say(("p", self._status(state, recorded=recorded, ready=ready)))

    def _status(self, state: LoraState, *, recorded: bool, ready: bool) -> str:
        if recorded:
            return (
                "A recording has no adapter to keep. Give a name under “Keep as” in the controls and run: it is "
                "trained anew, and kept."
            )
        if self._waiting:
            return "It is being written."
        if self._said:
            return plain_text(self._said)
        if not ready:
            return "Follows when the run has ended."
        return "" if state.trained else "The run was stopped. Keep the best adapter so far, then see before and after."
