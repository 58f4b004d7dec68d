"""The merged model as a model of its own: off the base's 4-bit grid, it is work for the quantization page."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from lab.events.lora import MergedModel
from widgets.action_row import Action, ActionRow
from widgets.experiment import Desk
from widgets.format import format_bytes
from widgets.lora.named_form import name_form, show_form, why_no_name
from widgets.lora.sentences import unbroken
from widgets.lora.state import LoraState
from widgets.page_links import page_name
from widgets.section import Section, heading, section
from widgets.text import Words
from widgets.token_text import plain_text

WRITE = Action("write", "Write the merged model", "Starts a run that merges once more, checks the merge, and writes.")
AGAIN = ("factor", "keep_rank", "prompt", "chat", "max_new_tokens", "heldout_tokens", "text")
"""Parameters that the run which writes has in common with the one on screen."""


class MergedSection(Section[LoraState]):
    """A name, a button that starts the run which writes, and where the model can go from there.

    Attributes:
        name: as typed. kept: the name under which this run's trained adapter lies, "" if it does not yet; the page
            ties it to the form that keeps it.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.name = self._wrong = ""
        self.kept: Callable[[], str] = lambda: ""
        self._state: LoraState | None = None
        self._waiting = False
        self._turn = 0
        self._told = ""
        self._form = name_form("Write it as", "velmora-merged", self._typed)
        self._actions = ActionRow(label="The merged model")
        self._actions.on_action(self._act)
        self._words = Words(css_class="lab-caption")
        self.widget = section(
            heading(
                "Quantize it?",
                "Written as a model of its own, the merged model can be chosen on every page of the lab.",
            ),
            self._form,
            self._actions,
            self._words,
        )

    @classmethod
    def present(cls, state: LoraState) -> bool:
        return state.end is not None and state.own is not None and not (state.own.matches or state.own.effectless)

    def reset(self) -> None:
        self.name = self._wrong = ""
        self._waiting = False
        self._turn += 1

    def _typed(self, name: str) -> None:
        with self._desk.lock:
            self.name, self._wrong = name, ""
        self._desk.touch()

    def _act(self, action: str) -> None:
        with self._desk.lock:
            state, name, kept, turn = self._state, self.name, self.kept(), self._turn
            self._wrong = why_no_name(name)
            goes = action == WRITE.id and state is not None and not self._wrong and not self._waiting
            first = bool(goes and state is not None and state.task == "train" and not kept)
            self._waiting = self._waiting or first
        self._desk.touch()
        if not goes or state is None:
            return
        if first:  # the run that writes reads the adapter from the disk
            self._desk.ask("save", {"name": name}, lambda made, why: self._saved(made, why, turn, name), of_run=True)
        else:
            self._start(state, name, kept or str(state.param("adapter", "")))

    def _saved(self, answer: dict[str, Any] | None, why: str, turn: int, name: str) -> None:
        with self._desk.lock:
            state = self._state if turn == self._turn else None
            self._waiting = False
            if answer is None:
                self._wrong = why or "The adapter could not be kept."
        self._desk.touch()
        if answer is not None and state is not None:
            self._start(state, name, str(answer.get("name", "")))

    def _start(self, state: LoraState, name: str, adapter: str) -> None:
        started, start = state.started, self._desk.start
        if started is None or start is None:
            return
        usual = {"factor": 1.0, "keep_rank": 0} if state.task == "train" else {}
        same = {key: started.card.params[key] for key in AGAIN if key in started.card.params}
        start({**same, **usual, "task": "compare", "adapter": adapter, "merged_out": name, "break_run": "nothing"}, "")

    def render(self, state: LoraState, upto: int, *, live: bool) -> None:
        del upto
        self._state = state
        recorded, written = bool(state.started and state.started.recorded), state.written
        can = self._desk.start is not None and not live and (state.task != "train" or not recorded)
        show_form(self._form, self.name, self._wrong, ready=can and not self._waiting)
        actions = [WRITE] if can and not self._waiting else []
        if written is not None and not recorded:
            actions.insert(0, Action("quantize", f"Quantize {plain_text(written.name)} →", href=quantize_link(written)))
            if self._told != written.model:
                self._told = written.model
                self._desk.renew()
        self._actions.show(actions)
        lines = written_words(written) if written is not None else why_words(state)
        if state.task == "train" and recorded:
            lines.append("A recording has no adapter to merge: run it, then write.")
        if self._waiting:
            lines.append("The adapter is being kept first.")
        self._words.say(*(("p", line) for line in lines))


def quantize_link(written: MergedModel) -> str:
    """The quantization page on that model, and on a matrix that is no longer on the grid."""
    query = {"model": written.model}
    if written.projections:
        query["projection"] = written.projections[0]
    return f"{page_name('quantization')}#{urlencode(query)}"


def why_words(state: LoraState) -> list[str]:
    """Why one would: only where the base lies on a grid."""
    facts = state.started.facts if state.started else None
    if facts is None or not facts.grid:
        return []
    return [
        f"The base's weights come from {facts.grid}, which flatters 4-bit methods. Merged ones lie on no grid: on them "
        "a study of 4 bits means what it says."
    ]


def written_words(w: MergedModel) -> list[str]:
    """What was written, and how far it is off the grid."""
    some = f"{plain_text(w.name)} is written: {format_bytes(w.bytes)}, listed with the other models."
    where = ", ".join(w.projections)
    kept = f"; the {w.others:,} other matrices are the base's own, bit for bit" if w.others else ""
    lines = [f"{some} Merged: {w.matrices:,} matrices ({where}){kept}."]
    if w.checked and math.isfinite(w.merged_changed):
        lines.append(
            f"MEASURED: put on 4 bits, float minimum, groups of 32, {unbroken(w.merged_changed)} of the "
            f"{w.checked:,} merged weights change; in the base, {unbroken(w.base_changed)}."
        )
    return lines
