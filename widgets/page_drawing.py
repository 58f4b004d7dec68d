"""Writes to the shared widgets of a page what is true now. The pump calls it, with the lock held."""

from __future__ import annotations

from lab.events import RunStarted
from widgets.experiment import Cursor, ExperimentViews
from widgets.exporting import export_items
from widgets.linked import write_link
from widgets.page_state import PageState
from widgets.parts import Parts
from widgets.proof_words import proof_state
from widgets.session import ACTIVE, Session

GENERATING = ("generating", "searching")
"""The stages in which a run makes tokens; the views then say where it is."""
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class PageDrawing:
    """All around the pictures: controls, runner, player, proof, card, link, lesson, and the error if there is one."""

    def __init__(
        self, state: PageState, session: Session, cursor: Cursor, parts: Parts, views: ExperimentViews
    ) -> None:
        self._state = state
        self._session = session
        self._cursor = cursor
        self._parts = parts
        self._views = views
        self._card_of: RunStarted | None = None

    def draw(self) -> None:
        """Write the page."""
        started = self._session.started
        live = self._session.phase in ACTIVE
        self._views.render(live=live)
        self._draw_controls(started)
        step = self._draw_player(live=live)
        self._parts.compare.render(self._views.state, live=live)
        self._draw_foot(started, step)
        self.draw_trouble()
        self._parts.lesson.show(self._views.lesson(self._state.facts or (started.facts if started else None)))

    def draw_trouble(self) -> None:
        """The error alone."""
        trouble = self._session.trouble
        if trouble is None:
            self._parts.error.hide()
        else:
            self._parts.error.show(trouble.message, trouble.remedy, trouble.code)

    def _draw_controls(self, started: RunStarted | None) -> None:
        state, session, parts = self._state, self._session, self._parts
        parts.controls.update(
            schema=state.schema,
            values=state.params,
            models=[{"id": model, "label": name} for model, name in state.models.items()],
            model=state.model,
        )
        # A recording that ended is not a run that this page made: its header says so, and the bar says nothing.
        shown = session.replaying and session.phase == "done"
        phase, fraction = ("idle", None) if shown else (session.phase, session.fraction)
        parts.runner.show(phase, fraction, self._note(), can_run=not parts.controls.invalid)
        parts.heartbeat.show(
            mode="live" if started and not session.recorded and not session.replaying else "recorded",
            when=session.recorded or "",
            model=_model_line(started),
        )

    def _draw_player(self, *, live: bool) -> int:
        """The step on screen."""
        steps = self._views.steps()
        step = steps - 1 if self._cursor.step is None else min(self._cursor.step, steps - 1)
        planned = self._views.planned_steps() if live else steps
        self._parts.player.show(
            step=max(step, 0),
            available=steps,
            total=max(planned, steps),
            playing=self._state.playing,
            following=self._cursor.step is None,
            unit=getattr(self._views, "step_unit", "token"),
        )
        return step

    def _draw_foot(self, started: RunStarted | None, step: int) -> None:
        state, parts = self._state, self._parts
        parts.proof.show(**proof_state(self._session))
        if started is not self._card_of:
            self._card_of = started
            parts.card.show(started.card if started else None)
        at = None if self._cursor.step is None else step
        parts.link.show(write_link(state.params, model=state.model, step=at, settings=self._views.link()))
        parts.export.show(export_items(self._session.recording() is not None))

    def _note(self) -> str:
        session = self._session
        if session.phase == "running":
            return (self._views.note() if session.stage in GENERATING else "") or session.note or "running"
        return session.note


def _model_line(started: RunStarted | None) -> str:
    """The model of the run on screen in a few words."""
    if started is None:
        return ""
    card = started.card
    return f"{started.facts.name} · {_DTYPES.get(card.dtype, card.dtype)} · {card.device.split()[0].upper()}"
