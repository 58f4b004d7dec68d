"""One experiment as a page: controls, pictures, lesson. The same in a notebook cell and under Voila."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import ipywidgets as ipw

from lab.backend.connect import connect
from lab.backend.protocol import DEFAULT_MODEL, Backend, RunRequest
from lab.errors import LabError
from lab.events import ModelFacts, Recording, RunStarted, is_final
from lab.experiments.registry import get_experiment
from lab.settings import REPLAY
from widgets.asker import Asker
from widgets.experiment import Cursor, Desk, build_views
from widgets.exporting import export_items, make_export
from widgets.parts import Parts
from widgets.proof_words import proof_state
from widgets.pump import Pump
from widgets.session import ACTIVE, Session, Trouble

log = logging.getLogger(__name__)

RECORDINGS = Path(__file__).parent / "recordings"
GENERATING = ("generating", "searching")
"""The stages in which a run makes tokens; the views then say where it is."""


class Dashboard(ipw.VBox):
    """The page of one experiment.

    Args:
        experiment: its name, e.g. "kv_cache".
        backend: where to run; None joins a running `lab up`, else runs in this process.
        autorun: make a live run as soon as the backend answers.
        recording: shown first; None takes the packaged one.

    Raises:
        NotFound: no such experiment.
    """

    def __init__(
        self,
        experiment: str,
        *,
        backend: Backend | None = None,
        autorun: bool = True,
        recording: Path | None = None,
    ) -> None:
        described = get_experiment(experiment)
        self.experiment = experiment
        self._described = described
        self._backend = backend
        self._backend_lock = threading.Lock()
        self._facts: ModelFacts | None = None
        self._found: list[ModelFacts] | None = None
        self._models: dict[str, str] = {DEFAULT_MODEL: "SmolLM2-135M-Instruct"}
        self._model = DEFAULT_MODEL
        self._schema = described.info().schema
        self._params = described.params().model_dump(mode="json")
        self._last_params: dict[str, Any] | None = None
        self._autorun = autorun
        self._playing = False
        self._closed = False
        self._joined = False
        self._replay = False
        self._shown_start: RunStarted | None = None

        self.pump = Pump(self._render, on_error=self._render_failed)
        self.session = Session(self.pump.lock, self._fold, self.pump.touch)
        self._asker = Asker(experiment, self._connected, self.session, self.pump.lock)
        self.cursor = Cursor()
        desk = Desk(self._ask, self.pump.touch, self.pump.lock, self.cursor, lambda: self._found, self.start)
        self.views = build_views(experiment, desk)
        self.parts = Parts(described, self._schema, self._params, self._model)
        self._wire()
        super().__init__(self.parts.layout(self.views.widget))
        self.add_class("lab-page")
        self._show_first(recording)
        threading.Thread(target=self._join_backend, name="lab-connect", daemon=True).start()

    def _wire(self) -> None:
        """Say who hears of what a visitor does."""
        parts = self.parts
        parts.controls.on_values(self._values_changed)
        parts.controls.on_preset(self._preset_chosen)
        parts.controls.on_model(self._model_chosen)
        parts.runner.on_run(self.run)
        parts.runner.on_stop(self.stop)
        parts.player.on_step(self._stepped)
        parts.player.on_play(self._played)
        parts.proof.on_cancel(self.stop)
        parts.link.on_link(self._restore)
        parts.export.on_export(self._exported)
        parts.error.on_dismiss(self.session.dismiss)

    # the backend

    def _connected(self) -> Backend:
        """The backend, joined on first use; called from worker threads alone.

        Raises:
            LabError: it cannot be reached.
        """
        with self._backend_lock:
            if self._backend is None:
                self._backend = connect()
            return self._backend

    def _join_backend(self) -> None:
        try:
            self._narrow()
        except LabError as error:
            self._not_joined(Trouble(error.message, error.remedy, error.code))
            return
        except Exception:
            log.exception("the backend could not be joined")
            self._not_joined(Trouble("The model process could not be reached.", "Run `lab doctor` in a terminal."))
            return
        if self._autorun and not self._closed:
            self.run()

    def _not_joined(self, trouble: Trouble) -> None:
        """Say it, unless the page already shows an error that came first."""
        if self.session.trouble is None:
            self.session.fail(trouble)

    def _narrow(self) -> None:
        """Take the models and the schema of the chosen one from the backend."""
        backend = self._connected()
        models = backend.models()
        facts = next((m for m in models if m.id == self._model), None)
        info = next((i for i in backend.experiments(self._model) if i.name == self.experiment), None)
        with self.pump.lock:
            self._models = {m.id: m.name if m.present else f"{m.name} (fetched when run)" for m in models}
            self._models.setdefault(self._model, Path(self._model).name)  # a directory or a file from a link
            self._facts, self._found = facts, models
            self._joined = True
            if info is not None:
                self._schema = info.schema
        self.pump.touch()
        self.views.settle()

    def _ask(self, name: str, params: dict[str, Any], reply: Any, *, of_run: bool) -> None:
        live = self._joined and not (self._replay and self.session.replaying)
        with self.pump.lock:
            model, started = self._model, self.session.started
            # Answers that stand beside a run's own figures are of its model until another run begins.
            if started is not None and not self.session.replaying and getattr(self.views, "asks_of_run", False):
                model = started.card.model
        self._asker.ask(name, params, reply, of_run=of_run, model=model, live=live)

    # what a visitor does; called on the kernel's main thread

    def run(self) -> None:
        """Start a run with the present controls.

        Alone on this machine, or with the same card once more, it is a live run; among other visitors a
        recording of the same card will do, and is marked as one.
        """
        with self.pump.lock:
            params, model = dict(self._params), self._model
            again = params == self._last_params
            self._last_params = params
            self.cursor.step = self.cursor.hover = self.cursor.locked = None
            self._playing = False

        def request(backend: Backend) -> RunRequest:
            fresh = again or backend.health().runs_active == 0
            return RunRequest(experiment=self.experiment, params=params, model=model, fresh=fresh)

        self.session.run(self._connected, request)

    def start(self, params: Mapping[str, Any], model: str = "") -> None:
        """Run with these parameters, on another model where one is named: what a button in a picture asks for."""
        self._values_changed(dict(params))
        with self.pump.lock:
            before, self._model = self._model, model or self._model
        self.run()
        if model and model != before:
            self._model_chosen(model, before)

    def stop(self) -> None:
        """Stop the living run."""
        self.session.stop()

    def set_params(self, **values: Any) -> None:
        """Set parameters by name, as the controls do.

        Raises:
            BadInput: a name that the experiment does not have.
        """
        unknown = sorted(values.keys() - self._params.keys())
        if unknown:
            raise LabError(f"{self.experiment} has no parameter {', '.join(unknown)}.")
        self._values_changed(values)

    def _values_changed(self, values: dict[str, Any]) -> None:
        with self.pump.lock:
            self._params = {**self._params, **{k: v for k, v in values.items() if k in self._params}}
        self.pump.touch()

    def _preset_chosen(self, index: int) -> None:
        if 0 <= index < len(self._described.presets):
            defaults = self._described.params().model_dump(mode="json")
            self._values_changed({**defaults, **self._described.presets[index].params})
            self.run()

    def _model_chosen(self, model: str, instead_of: str = "") -> None:
        with self.pump.lock:
            before, self._model = instead_of or self._model, model
            self._last_params = None

        def narrow() -> None:
            try:
                self._narrow()
            except LabError as error:
                with self.pump.lock:  # what cannot be used is not left standing in the menu
                    if self._model == model:
                        self._model = before
                self.session.fail(Trouble(error.message, error.remedy, error.code))

        threading.Thread(target=narrow, name="lab-narrow", daemon=True).start()

    def _stepped(self, step: int) -> None:
        with self.pump.lock:
            last = self.views.steps() - 1
            self.cursor.step = None if step >= last and self.session.phase in ACTIVE else min(step, last)
            self.cursor.hover = None
        self.pump.touch()

    def _played(self, playing: bool) -> None:
        with self.pump.lock:
            self._playing = playing
        self.pump.touch()

    def _restore(self, values: dict[str, Any]) -> None:
        """Take the whole state from a link: parameters that fit the schema, the step, the views' settings."""
        settings = dict(values)
        params = {k: settings.pop(k) for k in list(settings) if k in self._params}
        step, model = settings.pop("step", None), settings.pop("model", None)
        if isinstance(model, str) and model != self._model:
            self._model_chosen(model)
        with self.pump.lock:
            checked = self._checked(params)
            rerun = self._autorun and checked != self._params
            self._params = checked
            if isinstance(step, int) and step >= 0:
                self.cursor.step = step
            self.views.restore(settings)
        self.views.settle()
        self.pump.touch()
        if rerun:
            self.run()

    def _checked(self, params: dict[str, Any]) -> dict[str, Any]:
        good = dict(self._params)
        for name, value in params.items():
            # A link written by hand has no quotes around a text: group_size=32 was read as a number.
            for tried in (value, str(value)) if type(value) in (int, float) else (value,):
                try:
                    checked = self._described.params.model_validate({**good, name: tried})
                except ValueError:
                    continue
                good[name] = checked.model_dump(mode="json")[name]
                break
        return good

    def _exported(self, what: str) -> None:
        try:
            with self.pump.lock:
                recording = self.session.recording()
                tables = self.views.tables()
            name, data, kind = make_export(what, self.experiment, recording, tables)
        except LabError as error:
            self.session.fail(Trouble(error.message, error.remedy, error.code))
            return
        self.parts.export.deliver(name, data, kind)

    # events in, pictures out

    def _fold(self, event: Any) -> None:
        if event is None:
            self.views.reset()
        else:
            self.views.fold(event)
            if is_final(event):
                self.views.settle()  # what the pictures ask is recorded with the run

    def _show_first(self, recording: Path | None) -> None:
        chosen = recording or (Path(os.environ[REPLAY]) if os.environ.get(REPLAY) else None)
        if chosen is not None:
            self._autorun = False
            self._replay = True
        path = chosen or RECORDINGS / f"{self.experiment}.safetensors"
        query = dict(parse_qsl(os.environ.get("QUERY_STRING", "")))
        if query.get("autorun") == "0":
            self._autorun = False
        try:
            shown = Recording.load(path)
            if chosen is not None and recording is None and shown.started.card.experiment != self.experiment:
                # The lab was started with another experiment's recording; this page shows its own.
                shown = Recording.load(RECORDINGS / f"{self.experiment}.safetensors")
            self.session.show(shown)
            self.views.settle()
        except LabError as error:
            self.session.fail(Trouble(error.message, error.remedy, error.code))
        self.pump.drain()

    def _render_failed(self, error: Exception) -> None:
        self.session.trouble = Trouble(
            f"A picture could not be drawn ({type(error).__name__}).", "The server's log says why. Run again."
        )
        self.parts.error.show(self.session.trouble.message, self.session.trouble.remedy, self.session.trouble.code)

    def _render(self) -> None:
        """Write what is true now. The pump alone calls it, with the lock held."""
        session = self.session
        started = session.started
        facts = self._facts or (started.facts if started else None)
        live = session.phase in ACTIVE
        self.views.render(live=live)
        self.parts.controls.update(
            schema=self._schema,
            values=self._params,
            models=[{"id": k, "label": v} for k, v in self._models.items()],
            model=self._model,
        )
        self.parts.runner.show(session.phase, session.fraction, self._note(), can_run=not self.parts.controls.invalid)
        self.parts.heartbeat.show(
            mode="live" if started and not session.recorded and not session.replaying else "recorded",
            when=session.recorded or "",
            model=_model_line(started),
        )
        steps = self.views.steps()
        step = steps - 1 if self.cursor.step is None else min(self.cursor.step, steps - 1)
        planned = self.views.planned_steps() if live else steps
        self.parts.player.show(
            step=max(step, 0),
            available=steps,
            total=max(planned, steps),
            playing=self._playing,
            following=self.cursor.step is None,
            unit=getattr(self.views, "step_unit", "token"),
        )
        self.parts.proof.show(**proof_state(session))
        if started is not self._shown_start:
            self._shown_start = started
            self.parts.card.show(started.card if started else None)
        self.parts.link.show(
            {
                **self._params,
                **self.views.link(),
                "model": self._model,
                "step": None if self.cursor.step is None else step,
            }
        )
        self.parts.export.show(export_items(session.recording() is not None))
        if session.trouble is None:
            self.parts.error.hide()
        else:
            self.parts.error.show(session.trouble.message, session.trouble.remedy, session.trouble.code)
        self.parts.lesson.show(self.views.lesson(facts))

    def _note(self) -> str:
        session = self.session
        if session.phase == "running":
            return (self.views.note() if session.stage in GENERATING else "") or session.note or "running"
        return session.note

    def close(self) -> None:
        """Stop the run and end the page's threads."""
        if not hasattr(self, "session"):  # the constructor refused
            return
        self._closed = True
        self.session.stop()
        self._asker.close()
        self.pump.close()
        super().close()


def _model_line(started: Any) -> str:
    if started is None:
        return ""
    card = started.card
    dtype = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(card.dtype, card.dtype)
    return f"{started.facts.name} · {dtype} · {card.device.split()[0].upper()}"
