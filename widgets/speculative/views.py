"""The centre of the `speculative` page: the sections of the task that the run on screen does."""

from __future__ import annotations

import math
from typing import Any

import ipywidgets as ipw

from lab.events import ModelFacts
from lab.experiments.speculative.params import DRAFT_TITLES, MAX_GAMMA
from widgets.experiment import Desk, Table
from widgets.format import format_bytes
from widgets.run_views import RunViews
from widgets.speculative import lesson, tables
from widgets.speculative.drafts_section import DraftsSection
from widgets.speculative.pay_section import PaySection
from widgets.speculative.rounds_section import RoundsSection
from widgets.speculative.sentences import MISTAKES
from widgets.speculative.state import SpeculativeState, Spot
from widgets.speculative.sweep_section import SweepSection
from widgets.speculative.trace_section import TraceSection
from widgets.speculative.trial_section import TrialSection

INTROS = {
    "decode": "A cheap draft proposes tokens. The model reads all of them in one pass, keeps those that agree with it, "
    "and puts in its own at the first that does not.",
    "sweep": "The same text with one, two, three and more tokens proposed a round, each against a plain run: where is "
    "the best γ here?",
    "drafts": "All drafts run on the same twelve prompts of four kinds, prompt by prompt, each against a plain run. "
    "The fastest stands on top.",
    "trial": "The rule promises the model's own distribution, whatever the draft says. Here it is shown by formula, "
    "then tried: many pairs of tokens are drawn with the draft and tested against the model.",
}


class SpeculativeViews(RunViews[SpeculativeState]):
    """All pictures of one run, drawn from one state. Steps are rounds, or the points of the other tasks."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, SpeculativeState)
        self._keep_lock = False
        self._task = ""
        self._trace = TraceSection(desk)
        self._rounds = RoundsSection(desk, self._trace)
        self._pay = PaySection()
        self._sweep, self._drafts, self._trial = SweepSection(), DraftsSection(), TrialSection()
        self.widget = ipw.VBox([])
        self._choose("decode")

    def _choose(self, task: str) -> None:
        """Put the sections of a task on the page."""
        if task == self._task:
            return
        self._task = task
        self.step_unit = {"decode": "round", "sweep": "γ", "drafts": "measurement", "trial": "point"}[task]
        shown: dict[str, list[ipw.Widget]] = {
            "decode": [*self._trace.widgets, self._rounds.widget, *self._pay.widgets],
            "sweep": [self._sweep.widget],
            "drafts": [self._drafts.widget],
            "trial": self._trial.widgets,
        }
        self.widget.children = [self._intro, *shown[task]]

    def reset(self) -> None:
        """Forget the run."""
        super().reset()
        self._trace.reset(keep_lock=self._keep_lock)
        self._keep_lock = False

    def planned(self, steps: int) -> int:
        state = self.state
        match state.task:
            case "sweep":
                told = state.progress.total if state.progress else MAX_GAMMA
                return max(steps, told if told <= MAX_GAMMA else MAX_GAMMA)
            case "drafts":
                skipped = sum(bool(d.skipped) for d in state.drafts)
                return max(steps, state.progress.total + skipped if state.progress else len(DRAFT_TITLES))
            case "trial":
                last = state.trial[-1] if state.trial else None
                return max(steps, round(steps * last.planned / last.runs)) if last and last.runs else max(steps, 1)
        new, wanted = state.emitted(steps - 1), int(state.param("max_new_tokens", 1))
        pace = max(1.0, (new - 1) / steps) if steps else 2.0
        return steps + math.ceil(max(0, wanted - max(new, 1)) / pace)

    def note(self) -> str:
        """Where the run is: the token, of how many, and how many come of a pass."""
        state = self.state
        if state.task != "decode" or state.started is None or not state.rounds:
            return ""
        new = state.emitted(state.steps - 1)
        pace = (new - 1) / state.steps
        return f"token {new} of {state.param('max_new_tokens', '?')} · round {state.steps} · {pace:.1f} tokens a pass"

    def render(self, *, live: bool) -> None:
        """Write the state to the widgets."""
        state = self.state
        task = state.task
        self._choose(task)
        self._intro.say(*(("p", text) for text in _intro(state)))
        upto = self.upto()
        match task:
            case "sweep":
                self._sweep.render(state, upto, live=live)
            case "drafts":
                self._drafts.render(state, upto, live=live)
            case "trial":
                self._trial.render(state, upto, live=live)
            case _:
                spot = self._trace.render(state, upto, live=live)
                pointed = self._trace.hover or self._trace.locked
                self._rounds.render(state, upto, spot, self._trace.locked, live=live)
                self._pay.render(state, upto, pointed.round if pointed else None, live=live)

    def lesson(self, facts: ModelFacts | None) -> list[dict[str, Any]]:
        """The lesson's sections for the model on screen."""
        del facts
        return lesson.sections(self._desk.words, self._example)

    def tables(self) -> list[Table]:
        """The data behind the pictures of the task on screen."""
        state = self.state
        match state.task:
            case "sweep":
                return [tables.sweep_table(state)]
            case "drafts":
                return [tables.draft_table(state)]
            case "trial":
                shares = state.identity.shares if state.identity else ()
                identity = tables.share_table(shares, "distributions")
                return [tables.trial_table(state), tables.pair_table(state), identity]
        return [
            tables.token_table(state),
            tables.round_table(state),
            tables.distribution_table(state),
            tables.plain_table(state),
            tables.figure_table(state),
        ]

    def link(self) -> dict[str, Any]:
        """The locked token, and whether dropped tokens are hidden."""
        locked = self._trace.locked
        return {
            "token": f"{locked.round + 1}-{locked.row}" if locked else None,
            "dropped": None if self._trace.dropped else "hidden",
        }

    def restore(self, settings: dict[str, Any]) -> None:
        """Take view settings from a link; what does not fit is ignored."""
        self._trace.dropped = settings.get("dropped") != "hidden"
        round_, _, row = str(settings.get("token", "")).partition("-")
        if round_.isdecimal() and row.isdecimal() and len(round_) < 6 and len(row) < 6:
            self._trace.locked = Spot(int(round_) - 1, int(row))
            self._keep_lock = True


def _intro(state: SpeculativeState) -> list[str]:
    """What the task does, who drafts, and the mistake of a run that is broken on purpose."""
    said = [INTROS[state.task]]
    if state.ready is not None and state.task != "drafts":
        beyond = f", {format_bytes(state.ready.bytes)} beyond the model" if state.ready.bytes else ""
        notes = " ".join(n if n.endswith(".") else f"{n}." for n in state.ready.notes)
        said.append(f"Draft: {state.ready.title}{beyond}. {notes}".strip())
    mistake = str(state.param("break_run", "nothing"))
    if mistake in MISTAKES:
        said.append(MISTAKES[mistake])
    return said
