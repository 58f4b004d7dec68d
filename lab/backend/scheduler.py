"""The cooperative scheduler: one worker thread, on which runs take turns.

A run is a generator; what it does between two yields is a slice. Between slices the worker answers
questions first, then gives the next slice to the run with the least accumulated time. Stopping a run closes its
generator at the next slice's end. Nothing that a run raises reaches another run or the worker.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from lab.backend.failures import failure, is_out_of_memory
from lab.backend.kept import KeptRun, KeptRuns, size_of
from lab.backend.limits import Limits
from lab.backend.live import LiveRun
from lab.backend.loaded import LoadedModels
from lab.backend.log import stop_reason
from lab.backend.questions import Question
from lab.backend.source import ModelSource, Placement
from lab.errors import Busy, DeadlineExceeded, LabError, ModelError
from lab.events import Event, Loading, Queued, RunCancelled, RunFailed, RunFinished, RunStarted, is_final
from lab.experiments.base import Outcome, RunContext

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

log = logging.getLogger(__name__)

CLOSED = "the backend was closed"


class _LoadAbandoned(BaseException):
    """Nobody waits for this model any more. Not an Exception: nothing on the way may swallow it."""


class Scheduler:
    """Runs generators by turns.

    Args:
        clock: seconds; only differences count. Tests inject their own.
        ended: told of each run that ended, with its final event, under no lock.
        published: told of each event of each run, on the worker's thread or the submitter's.
    """

    def __init__(
        self,
        source: ModelSource,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.monotonic,
        published: Callable[[LiveRun, Event], None],
        ended: Callable[[LiveRun, Event], None],
    ) -> None:
        self.limits = limits
        self.kept = KeptRuns(limits.kept_bytes)
        self.models = LoadedModels(source, limits.models, self._model_dropped)
        self._source = source
        self._clock = clock
        self._published = published
        self._ended = ended
        self._changed = threading.Condition(threading.RLock())
        self._waiting: list[LiveRun] = []
        self._active: list[LiveRun] = []
        self._questions: list[Question] = []
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="lab-worker", daemon=True)
        self._worker.start()

    # What other threads call

    @property
    def lock(self) -> contextlib.AbstractContextManager[object]:
        """Held by who must look and submit in one step."""
        return self._changed

    @property
    def alive(self) -> bool:
        """Whether the worker lives."""
        return self._worker.is_alive()

    def counts(self) -> tuple[int, int]:
        """Active and waiting runs."""
        with self._changed:
            return len(self._active), len(self._waiting)

    def find(self, *, key: str | None = None, run_id: str | None = None) -> LiveRun | None:
        """The living run with that key or id."""
        with self._changed:
            for run in (*self._active, *self._waiting):
                if not run.cancelled and (run.key == key or run.id == run_id):
                    return run
        return None

    def kept_run(self, run_id: str) -> KeptRun | None:
        """The finished run with that id, if its state is still kept."""
        with self._changed:
            return self.kept.get(run_id)

    def submit(self, run: LiveRun) -> None:
        """Let `run` wait for its turn.

        Raises:
            Busy: too many wait already, or the scheduler is closing.
        """
        with self._changed:
            self._refuse_if_closing()
            waiting = [r for r in self._waiting if not r.cancelled]
            active = [r for r in self._active if not r.cancelled]
            room = self.limits.active_runs - len(active) + self.limits.waiting_runs
            if len(waiting) >= room:
                raise Busy(
                    f"{len(active)} runs are active and {len(waiting)} wait; no more than "
                    f"{self.limits.waiting_runs} may wait.",
                    remedy="Try again in a moment.",
                )
            if run.card is not None:
                self._publish(run, RunStarted(run_id=run.id, card=run.card, facts=run.facts))
            self._waiting.append(run)
            self._tell_positions()
            self._changed.notify_all()

    def ask(self, question: Question) -> None:
        """Have `question` answered between two slices.

        Raises:
            Busy: too many questions wait already.
        """
        with self._changed:
            self._refuse_if_closing()
            if len(self._questions) >= self.limits.waiting_inspections:
                raise Busy(f"{len(self._questions)} questions wait already.", remedy="Ask again in a moment.")
            self._questions.append(question)
            self._changed.notify_all()

    def load_ahead(self, model: str, placement: Placement) -> LoadedModel:
        """Load a model before any run needs it. For a question, on the worker's thread.

        Raises:
            LabError: it cannot be loaded.
        """
        return self.models.get(model, placement, lambda *_: None, {r.model_key for r in self._active})

    def abandon(self, run: LiveRun) -> None:
        """Stop `run` within one slice, unless somebody reads it (again)."""
        with self._changed:
            if run.log.readers == 0:
                run.cancelled = True
                self._changed.notify_all()

    def close(self, timeout_s: float = 10.0) -> None:
        """End all runs as cancelled and stop the worker after its current slice."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if threading.current_thread() is not self._worker:
            self._worker.join(timeout_s)

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise Busy("The backend is closing.", remedy="Start it again.")

    # The worker

    def _work(self) -> None:
        while True:
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing or self._questions or self._active or self._waiting)
                    questions, self._questions = self._questions, []
                    closing = self._closing
                for question in questions:
                    question.answer()
                if closing:
                    break
                self._take_turn()
            except BaseException:
                log.exception("the worker met an error outside any run and goes on")
        self._end_all()

    def _take_turn(self) -> None:
        with self._changed:
            for run in [r for r in (*self._active, *self._waiting) if r.cancelled]:
                self._close(run)
                self._end(run, RunCancelled(reason=stop_reason(run.log.events)))
            while self._waiting and len(self._active) < self.limits.active_runs:
                self._activate(self._waiting.pop(0))
            self._tell_positions()
            chosen = min(self._active, key=lambda r: (r.turn_s, r.order), default=None)
        if chosen is None:
            return
        try:
            if chosen.generator is None:
                self._begin(chosen)
            else:
                self._slice(chosen, chosen.generator)
        except _LoadAbandoned:
            chosen.cancelled = True
        except BaseException as error:  # noqa: BLE001 - one run's error, of any kind, ends that run alone
            self._failed(chosen, error)

    def _activate(self, run: LiveRun) -> None:
        run.turn_s = min((r.turn_s for r in self._active), default=0.0)
        run.position = None
        self._active.append(run)

    def _begin(self, run: LiveRun) -> None:
        """Load the run's model and make its generator."""
        in_use = {r.model_key for r in self._active}
        model = self.models.get(run.facts.id, run.placement, self._load_progress(run), in_use)
        if run.card is None:
            card = run.name(model.facts)
            self._publish(run, RunStarted(run_id=run.id, card=card, facts=run.facts))
        elif run.card.weight_hash != model.facts.weight_hash:
            raise ModelError(f"The weights of {run.facts.id!r} changed while they were loaded.", remedy="Run again.")
        run.started_at = self._clock()
        run.context = RunContext(model=model)
        run.generator = run.runner.run(run.context, run.params)

    def _load_progress(self, run: LiveRun) -> Callable[[str, float | None], None]:
        def progress(stage: str, fraction: float | None) -> None:
            with self._changed:
                waits = [r for r in (*self._active, *self._waiting) if r.context is None]
                waits = [r for r in waits if r.model_key == run.model_key and not r.cancelled]
                if not waits or self._closing:
                    raise _LoadAbandoned
                for waiter in waits:
                    self._publish(waiter, Loading(stage=stage, fraction=fraction))

        return progress

    def _slice(self, run: LiveRun, generator: Generator[Event | None, None, Outcome]) -> None:
        for other in self._active:
            if other is not run:
                other.beside.add(run.id)
        event: Event | None = None
        outcome: Outcome | None = None
        began = self._clock()
        try:
            event = next(generator)
        except StopIteration as stop:
            outcome = stop.value
            if not isinstance(outcome, Outcome):
                raise TypeError("an experiment must return an Outcome") from None
        finally:
            now = self._clock()
            run.count_slice(now - began)
        if outcome is not None:
            self._finish(run, outcome)
            return
        if event is not None:
            if not isinstance(event, Event) or is_final(event) or isinstance(event, RunStarted):
                raise TypeError(f"an experiment may not yield {type(event).__name__}")
            self._publish(run, event)
        if run.started_at is not None and now - run.started_at > self.limits.deadline_s and not run.cancelled:
            raise DeadlineExceeded(
                f"The run took longer than its deadline of {self.limits.deadline_s:g} s.",
                remedy="Ask for fewer tokens, or a shorter prompt.",
            )

    def _finish(self, run: LiveRun, outcome: Outcome) -> None:
        final = run.finished(outcome)
        with self._changed:
            self._keep(run)
            self._end(run, final)

    def _failed(self, run: LiveRun, error: BaseException) -> None:
        if isinstance(error, LabError):  # said in words to whoever asked; there is nothing to debug
            log.warning("run %s of %s failed: %s", run.id, run.experiment.name, error.message)
        else:
            log.error("run %s of %s failed", run.id, run.experiment.name, exc_info=error)
        self._close(run)
        short = is_out_of_memory(error)
        final = failure(error)
        # The traceback holds the run's frames, and these its tensors.
        error.__traceback__ = None
        with self._changed:
            self._end(run, final)
            if short:
                self.kept.clear()
        if short:
            self._free_memory()

    def _free_memory(self) -> None:
        self.models.clear({r.model_key for r in self._active})
        gc.collect()

    def _close(self, run: LiveRun) -> None:
        if run.generator is not None:
            try:
                run.generator.close()
            except BaseException:
                log.exception("run %s did not close cleanly", run.id)

    def _keep(self, run: LiveRun) -> None:
        if run.context is not None and run.context.kept:
            size = size_of(run.context.kept, apart_from=run.context.model)
            self.kept.add(run.id, KeptRun(run.experiment.name, run.facts, run.context, size))

    def _end(self, run: LiveRun, final: RunFinished | RunCancelled | RunFailed) -> None:
        """Take `run` out and publish its final event. The lock is held."""
        if isinstance(final, RunCancelled):
            self._keep(run)
        for runs in (self._active, self._waiting):
            if run in runs:
                runs.remove(run)
        run.generator = None
        run.context = None
        self._publish(run, final)
        self._ended(run, final)

    def _end_all(self) -> None:
        with self._changed:
            for run in (*self._active, *self._waiting):
                self._close(run)
                self._end(run, RunCancelled(reason=CLOSED))
            for question in self._questions:
                question.refuse(Busy("The backend is closing.", remedy="Start it again."))
            self._questions = []

    # Both

    def _publish(self, run: LiveRun, event: Event) -> None:
        self._published(run, event)
        run.log.publish(event)

    def _tell_positions(self) -> None:
        room = self.limits.active_runs - len(self._active)
        waiting = [r for r in self._waiting if not r.cancelled]
        for position, run in enumerate(waiting[room:] if room > 0 else waiting):
            if run.position != position:
                run.position = position
                self._publish(run, Queued(position=position))

    def _model_dropped(self, model: object) -> None:
        with self._changed:
            self.kept.drop_model(model)
