"""One experiment as a page: controls, pictures, lesson. The same in a notebook cell and under Voila."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ipywidgets as ipw

from lab.backend.protocol import Backend, RunRequest
from lab.errors import LabError
from lab.events import is_final
from lab.experiments.registry import get_experiment
from lab.strings import chosen_language, strings
from widgets.asker import Asker
from widgets.connection import Connection
from widgets.experiment import Cursor, Desk, build_views
from widgets.exporting import make_export
from widgets.linked import read_link
from widgets.opening import open_page
from widgets.page_drawing import PageDrawing
from widgets.page_state import PageState
from widgets.parts import Parts
from widgets.pump import Pump
from widgets.resend import resend
from widgets.session import ACTIVE, Session, Trouble

log = logging.getLogger(__name__)


class Dashboard(ipw.VBox):
    """The page of one experiment.

    Args:
        experiment: its name, e.g. "kv_cache".
        backend: where to run; None joins a running `lab up`, else runs in this process.
        autorun: make a live run as soon as the backend answers.
        recording: shown first; None takes the packaged one.
        language: of titles, lesson and questions, such as "de"; None takes what the page's address asks for, else
            the lab's own (`LAB_LANGUAGE`), else English.

    Raises:
        NotFound: no such experiment.
        BadInput: no such language; the error names those there are.
    """

    def __init__(
        self,
        experiment: str,
        *,
        backend: Backend | None = None,
        autorun: bool = True,
        recording: Path | None = None,
        language: str | None = None,
    ) -> None:
        described = get_experiment(experiment)
        words = strings(chosen_language(os.environ.get("QUERY_STRING", "")) if language is None else language)
        self.experiment = experiment
        self.language = words.language
        self._described = described
        self._connection = Connection(backend)
        self._closed = False
        self._state = PageState(described.info().schema, described.params().model_dump(mode="json"))

        self.pump = Pump(self._draw, on_error=self._draw_failed)
        self.session = Session(self.pump.lock, self._fold, self.pump.touch)
        self._asker = Asker(experiment, self._connection.backend, self.session, self.pump.lock)
        self.cursor = Cursor()
        desk = Desk(self._ask, self.pump.touch, self.pump.lock, self.cursor, lambda: self._state.found, self.start)
        desk.words = words
        desk.renew = self.renew
        self.views = build_views(experiment, desk)
        self.parts = Parts(described, self._state.schema, self._state.params, self._state.model, words)
        self._drawing = PageDrawing(self._state, self.session, self.cursor, self.parts, self.views)
        self._wire()
        super().__init__(self.parts.layout(self.views.widget))
        self.add_class("lab-page")
        self._open(recording, autorun=autorun)
        threading.Thread(target=self._join_backend, name="lab-connect", daemon=True).start()

    def _wire(self) -> None:
        """Say who hears of what a visitor does."""
        parts = self.parts
        parts.controls.on_values(self._values_changed)
        parts.controls.on_preset(self._preset_chosen)
        parts.controls.on_model(self._model_chosen)
        parts.lesson.on_try(self._preset_chosen)
        parts.runner.on_run(self.run)
        parts.runner.on_stop(self.stop)
        parts.player.on_step(self._stepped)
        parts.player.on_play(self._played)
        parts.proof.on_cancel(self.stop)
        parts.link.on_link(self._restore)
        parts.export.on_export(self._exported)
        parts.error.on_dismiss(self.session.dismiss)
        parts.heartbeat.on_shown(self._resend)
        parts.compare.attach(self.session, self.pump.lock, self.pump.touch)

    # the backend

    def _join_backend(self) -> None:
        try:
            self._narrow()
        except LabError as error:
            self._not_joined(Trouble.of(error))
            return
        except Exception:
            log.exception("the backend could not be joined")
            self._not_joined(Trouble("The model process could not be reached.", "Run `lab doctor` in a terminal."))
            return
        if self._state.autorun and not self._closed:
            self.run()

    def _not_joined(self, trouble: Trouble) -> None:
        """Say it, unless the page already shows an error that came first."""
        if self.session.trouble is None:
            self.session.fail(trouble)

    def _narrow(self) -> None:
        """Take the models and the schema of the chosen one from the backend."""
        offers = self._connection.offers(self.experiment, self._state.model)
        with self.pump.lock:
            self._state.learn(*offers)
        self.pump.touch()
        self.views.settle()

    def _ask(self, name: str, params: dict[str, Any], reply: Any, *, of_run: bool) -> None:
        live = self._state.joined and not (self._state.replay and self.session.replaying)
        with self.pump.lock:
            model, started = self._state.model, self.session.started
            # Answers that stand beside a run's own figures are of its model until another run begins.
            if started is not None and not self.session.replaying and getattr(self.views, "asks_of_run", False):
                model = started.card.model
        self._asker.ask(name, params, reply, of_run=of_run, model=model, live=live)

    # what a visitor does; called on the kernel's main thread

    def run(self) -> None:
        """Start a run with the present controls. A name to keep something under is used once: it is taken then.

        Alone on this machine, or with the same card once more, it is a live run; among other visitors a
        recording of the same card will do, and is marked as one.
        """
        with self.pump.lock:
            params, model, again = self._state.run()
            self.cursor.step = self.cursor.hover = self.cursor.locked = None

        def request(backend: Backend) -> RunRequest:
            fresh = again or backend.health().runs_active == 0
            return RunRequest(experiment=self.experiment, params=params, model=model, fresh=fresh)

        self.session.run(self._connection.backend, request)

    def start(self, params: Mapping[str, Any], model: str = "") -> None:
        """Run with these parameters, on another model where one is named: what a button in a picture asks for."""
        self._values_changed(dict(params))
        with self.pump.lock:
            before, self._state.model = self._state.model, model or self._state.model
        self.run()
        if model and model != before:
            self._model_chosen(model, before)

    def renew(self) -> None:
        """Ask the backend again for models and choices, in the background."""

        def narrow() -> None:
            try:
                self._narrow()
            except LabError as error:  # what was there before stays
                log.warning("models and choices could not be asked for again: %s", error)

        threading.Thread(target=narrow, name="lab-renew", daemon=True).start()

    def stop(self) -> None:
        """Stop the living run."""
        self.session.stop()

    def set_params(self, **values: Any) -> None:
        """Set parameters by name, as the controls do.

        Raises:
            BadInput: a name that the experiment does not have.
        """
        unknown = sorted(values.keys() - self._state.params.keys())
        if unknown:
            raise LabError(f"{self.experiment} has no parameter {', '.join(unknown)}.")
        self._values_changed(values)

    def _values_changed(self, values: dict[str, Any]) -> None:
        with self.pump.lock:
            self._state.change(values)
        self.pump.touch()

    def _preset_chosen(self, index: int) -> None:
        if 0 <= index < len(self._described.presets):
            defaults = self._described.params().model_dump(mode="json")
            self._values_changed({**defaults, **self._described.presets[index].params})
            self.run()

    def _model_chosen(self, model: str, instead_of: str = "") -> None:
        with self.pump.lock:
            before = instead_of or self._state.model
            self._state.choose(model)

        def narrow() -> None:
            try:
                self._narrow()
            except LabError as error:
                with self.pump.lock:  # what cannot be used is not left standing in the menu
                    if self._state.model == model:
                        self._state.model = before
                self.session.fail(Trouble.of(error))

        threading.Thread(target=narrow, name="lab-narrow", daemon=True).start()

    def _stepped(self, step: int) -> None:
        with self.pump.lock:
            last = self.views.steps() - 1
            self.cursor.step = None if step >= last and self.session.phase in ACTIVE else min(step, last)
            self.cursor.hover = None
        self.pump.touch()

    def _played(self, playing: bool) -> None:
        with self.pump.lock:
            self._state.playing = playing
        self.pump.touch()

    def _restore(self, values: dict[str, Any]) -> None:
        """Take the whole state from a link: parameters that fit the schema, the step, the views' settings."""
        with self.pump.lock:
            linked = read_link(values, self._described.params, self._state.params)
        if linked.model not in ("", self._state.model):
            self._model_chosen(linked.model)
        with self.pump.lock:
            rerun = self._state.autorun and linked.params != self._state.params
            self._state.params = linked.params
            if linked.step is not None:
                self.cursor.step = linked.step
            self.views.restore(linked.settings)
        self.views.settle()
        self.pump.touch()
        if rerun:
            self.run()

    def _exported(self, what: str) -> None:
        with self.pump.lock:
            recording = self.session.recording()
            tables = self.views.tables()
        language = self.language

        def make() -> None:
            try:
                self.parts.export.deliver(*make_export(what, self.experiment, recording, tables, language))
            except LabError as error:
                self.parts.export.refuse("There is no file.")
                self.session.fail(Trouble.of(error))

        if what == "html":  # it takes seconds, in which the page's questions want to be answered
            threading.Thread(target=make, name="lab-export", daemon=True).start()
        else:
            make()

    # events in, pictures out

    def _fold(self, event: Any) -> None:
        if event is None:
            self.views.reset()
        else:
            self.views.fold(event)
            if is_final(event):
                self.views.settle()  # what the pictures ask is recorded with the run

    def _open(self, recording: Path | None, *, autorun: bool) -> None:
        """Draw what the page shows first."""
        opening = open_page(self.experiment, recording, autorun=autorun)
        with self.pump.lock:
            self._state.autorun, self._state.replay = opening.autorun, opening.replay
        if opening.recording is not None:
            self.session.show(opening.recording)
            self.views.settle()
        if opening.trouble is not None:
            self.session.fail(opening.trouble)
        self.pump.drain()

    def _resend(self) -> None:
        with self.pump.lock:
            resend(self)

    def _draw(self) -> None:
        self._drawing.draw()

    def _draw_failed(self, error: Exception) -> None:
        self.session.trouble = Trouble(
            f"A picture could not be drawn ({type(error).__name__}).", "The server's log says why. Run again."
        )
        self._drawing.draw_trouble()

    def close(self) -> None:
        """Stop the run and end the page's threads."""
        if not hasattr(self, "session"):  # the constructor refused
            return
        self._closed = True
        self.session.stop()
        self._asker.close()
        self.pump.close()
        super().close()
