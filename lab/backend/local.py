"""The backend in this process: a worker thread, the models it loads, and recordings of what it ran."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import psutil

from lab import __version__
from lab.backend.asking import Asking
from lab.backend.card import run_card
from lab.backend.garbage import spare_libraries
from lab.backend.limits import Limits
from lab.backend.live import LiveRun, new_run_id, request_key
from lab.backend.log import RunLog, Subscription
from lab.backend.model_room import ModelRoom
from lab.backend.protocol import DEFAULT_MODEL, Health, InspectRequest, RunRequest
from lab.backend.questions import Answer, Question
from lab.backend.recorder import Recorder
from lab.backend.scheduler import Scheduler
from lab.backend.source import ModelSource, Placement
from lab.backend.store import RunStore
from lab.backend.validation import validated
from lab.errors import BadInput, LabError, NotFound, shown
from lab.events import Event, Loading, ModelFacts, Queued, Recording, RunFinished, RunStarted
from lab.events.recording import Inspection
from lab.experiments.base import Experiment, ExperimentInfo

log = logging.getLogger(__name__)

REMEMBERED_REPLAYS = 64


class LocalBackend:
    """Runs experiments in this process; implements `Backend`. torch is imported with the first run, or by `warm`.

    Args:
        source: where models come from; the models room if None.
        experiments: by name; the registry's if None.
        store: where finished runs are kept; None keeps none.
        clock: see `Scheduler`.
    """

    def __init__(
        self,
        *,
        source: ModelSource | None = None,
        experiments: dict[str, Experiment] | None = None,
        store: RunStore | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or Limits()
        self._source: ModelSource = source or ModelRoom()
        self._experiments = experiments
        self._store = store
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._packing: dict[str, LiveRun] = {}
        self._ends = 0
        self._replays: OrderedDict[str, str] = OrderedDict()
        self._placement: Placement | None = None
        self._recorder = Recorder(store, self._packed) if store is not None else None
        self._scheduler = Scheduler(
            self._source, self.limits, clock=clock, published=self._on_event, ended=self._on_end
        )
        self._asking = Asking(self._scheduler, self._source, recorded=self._recording_of, record=self._record_answer)

    # The protocol

    def health(self) -> Health:
        """How this process is. Cheap: nothing is loaded."""
        active, waiting = self._scheduler.counts()
        placement = self._placement
        return Health(
            version=__version__,
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._began,
            models_loaded=self._scheduler.models.names(),
            runs_active=active,
            runs_waiting=waiting,
            resident_bytes=psutil.Process().memory_info().rss,
            free_bytes=psutil.virtual_memory().available,
            device=placement.device if placement else "",
            threads=placement.threads if placement else 0,
        )

    def models(self) -> list[ModelFacts]:
        """The models that can be asked for by name."""
        return self._source.list()

    def facts(self, model: str) -> ModelFacts:
        """The facts of one model.

        Raises:
            ModelError: there is no such model, or it is one that the lab cannot run.
        """
        return self._source.facts(model)

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name.

        Raises:
            NotFound: there is none.
        """
        known = self._known()
        if name not in known:
            raise NotFound(f"There is no experiment {shown(name)}.", remedy=f"The experiments are {', '.join(known)}.")
        return known[name]

    def experiments(self, model: str = DEFAULT_MODEL) -> list[ExperimentInfo]:
        """All experiments, their schemas narrowed to `model`."""
        facts = self._source.facts(model)
        return [experiment.info(facts) for experiment in self._known().values()]

    def run(self, request: RunRequest) -> Subscription:
        """Start a run, or join the one with the same card, or hand out its recording.

        Raises:
            BadInput: parameters, model, dtype or device that are not allowed; `NotFound`: no such experiment.
            Busy: too many runs wait.
        """
        run = self._prepared(request)
        fresh = request.fresh or run.params.writes()
        while True:
            with self._scheduler.lock:
                shared, ends = self._join(run.key), self._ends
            if shared is None and run.card is not None and not fresh:
                shared = self._recorded(run.key)
            if shared is not None:
                return shared
            with self._scheduler.lock:
                shared = self._join(run.key)
                if shared is not None:
                    return shared
                if self._ends != ends and not fresh:
                    continue  # a run ended meanwhile: perhaps this one, and it is recorded now
                reader = run.log.subscribe()
                self._scheduler.submit(run)
                return reader

    def inspect(self, request: InspectRequest) -> Answer:
        """Answer one question.

        Raises:
            NotFound: no such experiment or question; `BadInput`: parameters that are not allowed.
            Unavailable: the run's state is gone.
            Busy: too many questions wait, or the answer did not come in time.
        """
        return self._asking.answer(request, self.experiment(request.experiment))

    def close(self) -> None:
        """Stop all runs and write what is left to write."""
        self._scheduler.close()
        if self._recorder is not None:
            self._recorder.close()

    def warm(self, model: str = DEFAULT_MODEL) -> None:
        """Load `model` in the worker, if it is on this machine, so that the first run starts at once.

        For a process of the lab's own: what the libraries made is set aside for its life, see `garbage`.
        """
        self._scheduler.ask(Question(lambda: self._warm(model)))

    # Runs

    def _known(self) -> dict[str, Experiment]:
        if self._experiments is not None:
            return self._experiments
        from lab.experiments.registry import EXPERIMENTS

        return dict(EXPERIMENTS)

    def _prepared(self, request: RunRequest) -> LiveRun:
        """Check everything that can be checked before the run starts."""
        experiment = self.experiment(request.experiment)
        params = validated(experiment.params, request.params)
        self.limits.check(params.model_dump())
        facts = self._source.facts(request.model)
        unsupported = experiment.supports(facts)
        if unsupported:
            raise BadInput(f"{facts.name} cannot be used here: {unsupported}", remedy="Choose another model.")
        placement = self._source.placement(facts, request.dtype, request.device)
        self._placement = placement
        runner = experiment.load()
        runner.prepare(facts, params)
        card = run_card(experiment.name, facts, placement, params) if facts.present and facts.weight_hash else None
        run = LiveRun(
            request=request,
            experiment=experiment,
            runner=runner,
            params=params,
            facts=facts,
            placement=placement,
            card=card,
            key=card.key() if card is not None else request_key(request, params),
            log=RunLog(new_run_id(), on_abandoned=lambda: self._scheduler.abandon(run)),
        )
        return run

    def _join(self, key: str) -> Subscription | None:
        live = self._scheduler.find(key=key)
        return live.log.subscribe() if live is not None else None

    def _recorded(self, key: str) -> Subscription | None:
        """A finished run with that card: still in memory while it is being packed, else from disk."""
        with self._lock:
            packing = self._packing.get(key)
        events: tuple[Event, ...]
        if packing is not None:
            events = tuple(e for e in packing.log.events if not isinstance(e, Queued | Loading))
        else:
            recording = self._store.load(key) if self._store is not None else None
            if recording is None:
                return None
            events = recording.events
        first = events[0]
        if not isinstance(first, RunStarted):
            return None
        recorded = first.recorded or time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        first = RunStarted(run_id=first.run_id, card=first.card, facts=first.facts, recorded=recorded)
        with self._lock:
            self._replays[first.run_id] = key
            while len(self._replays) > REMEMBERED_REPLAYS:
                self._replays.popitem(last=False)
        return RunLog.of(first.run_id, (first, *events[1:])).subscribe()

    def _on_event(self, run: LiveRun, event: Event) -> None:
        # Waiting and loading belong to this time, not to the run: a recording leaves them out.
        if self._recorder is not None and run.card is not None and not isinstance(event, Queued | Loading):
            self._recorder.event(run.key, event)

    def _on_end(self, run: LiveRun, final: Event) -> None:
        self._ends += 1  # under the scheduler's lock
        if self._recorder is not None and run.card is not None:
            if isinstance(final, RunFinished):
                with self._lock:
                    self._packing[run.key] = run
                    self._replays[run.id] = run.key
            self._recorder.end(run.key)

    def _packed(self, key: str) -> None:
        with self._lock:
            self._packing.pop(key, None)

    def _warm(self, model: str) -> Answer:
        spare_libraries(experiment.load for experiment in self._known().values())
        try:
            facts = self._source.facts(model)
            if facts.present:
                placement = self._source.placement(facts, "auto", "auto")
                self._placement = placement
                self._scheduler.load_ahead(facts.id, placement)
        except LabError as error:
            log.warning("%s was not loaded ahead: %s", model, error)
        return {}

    # Answers

    def _record_answer(self, run_id: str, asked: Inspection) -> None:
        with self._lock:
            key = self._replays.get(run_id)
        if key is not None and self._recorder is not None:
            self._recorder.asked(key, asked)

    def _recording_of(self, run_id: str) -> Recording | None:
        with self._lock:
            key = self._replays.get(run_id)
        return self._store.load(key) if key is not None and self._store is not None else None
