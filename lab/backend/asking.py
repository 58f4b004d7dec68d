"""Answering questions: of a living run, of one that has ended, of a recorded one, of a model or its facts alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from lab.backend.live import LiveRun
from lab.backend.protocol import InspectRequest
from lab.backend.questions import Answer, AnswerCache, Question, bounded_answer
from lab.backend.scheduler import Scheduler
from lab.backend.source import ModelSource
from lab.backend.validation import validated
from lab.errors import NotFound, Unavailable, shown
from lab.events import ModelFacts
from lab.events.recording import Inspection, Recording
from lab.experiments.base import Experiment, RunContext, Runner


class Asking:
    """Questions to runs and to a model's weights go through the worker, between two slices; those to its facts do not.

    Args:
        recorded: the recording of a run, or None.
        record: told of each answer that a run which has ended gave.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        source: ModelSource,
        *,
        recorded: Callable[[str], Recording | None],
        record: Callable[[str, Inspection], None],
    ) -> None:
        self._scheduler = scheduler
        self._source = source
        self._recorded = recorded
        self._record = record
        self._limits = scheduler.limits
        self._lock = threading.Lock()
        self._answers = AnswerCache()

    def answer(self, request: InspectRequest, experiment: Experiment) -> Answer:
        """See `Backend.inspect`."""
        runner = experiment.load()
        cls = runner.inspections.get(request.name)
        if cls is None:
            raise NotFound(
                f"{experiment.title!r} has no question {shown(request.name)}.",
                remedy=f"The questions are {', '.join(sorted(runner.inspections)) or 'none'}.",
            )
        params = validated(cls, request.params)
        asked = json.dumps([request.experiment, request.name, params.model_dump(mode="json")], sort_keys=True)
        if request.run_id is None:
            facts = self._source.facts(request.model)
            key = f"{facts.id} {facts.weight_hash} {asked}"
            if request.name in getattr(runner, "reads_weights", ()):
                return self._cached(
                    key, lambda: self._through_worker(lambda: self._of_model(runner, facts, request.name, params))
                )
            return self._cached(key, lambda: self._compute(runner, None, facts, request.name, params))
        run_id = request.run_id
        live = self._scheduler.find(run_id=run_id)
        if live is not None:
            # Not cached: the answer may change while the run goes on.
            return self._through_worker(lambda: self._of_living(live, experiment, runner, request.name, params))
        return self._cached(
            f"{run_id} {asked}", lambda: self._of_ended(run_id, experiment, runner, request.name, params)
        )

    def _of_model(self, runner: Runner, facts: ModelFacts, name: str, params: Any) -> Answer:
        """Of the model's weights, with no run: as the run that a visitor would start has them."""
        if not facts.present:
            raise Unavailable(f"{facts.name} is not on this machine yet.", remedy="Run something with it first.")
        placement = self._source.placement(facts, "auto", "auto")
        context = RunContext(model=self._scheduler.load_ahead(facts.id, placement))
        return self._compute(runner, context, facts, name, params)

    def _of_living(self, live: LiveRun, experiment: Experiment, runner: Runner, name: str, params: Any) -> Answer:
        _same_experiment(live.experiment.name, experiment)
        context = live.context
        if context is None:
            kept = self._scheduler.kept_run(live.id)  # it ended while the question waited
            if kept is None:
                raise Unavailable("The run has not started yet.", remedy="Ask again when it has.")
            context = kept.context
        return self._compute(runner, context, live.facts, name, params)

    def _of_ended(self, run_id: str, experiment: Experiment, runner: Runner, name: str, params: Any) -> Answer:
        kept = self._scheduler.kept_run(run_id)
        plain = params.model_dump(mode="json")
        if kept is not None:
            _same_experiment(kept.experiment, experiment)
            answer = self._through_worker(lambda: self._compute(runner, kept.context, kept.facts, name, params))
            self._record(run_id, Inspection(name=name, params=plain, answer=answer))
            return answer
        recording = self._recorded(run_id)
        if recording is not None:
            _same_experiment(recording.started.card.experiment, experiment)
        recorded = recording.answer(name, plain) if recording is not None else None
        if recorded is None:
            raise Unavailable(
                "This run's state is no longer in memory, and this was not asked while it was.",
                remedy="Run it afresh, then ask.",
            )
        return recorded

    def _compute(self, runner: Runner, context: RunContext | None, facts: ModelFacts, name: str, params: Any) -> Answer:
        return bounded_answer(name, lambda: runner.inspect(context, facts, name, params), self._limits.answer_bytes)

    def _cached(self, key: str, compute: Callable[[], Answer]) -> Answer:
        with self._lock:
            found = self._answers.get(key)
        if found is not None:
            return found
        answer = compute()
        with self._lock:
            self._answers.put(key, answer)
        return answer

    def _through_worker(self, compute: Callable[[], Answer]) -> Answer:
        question = Question(compute)
        self._scheduler.ask(question)
        return question.wait(self._limits.inspect_s)


def _same_experiment(of_run: str, asked: Experiment) -> None:
    """Refuse a question to the run of another experiment: two experiments may have a question of the same name."""
    if of_run != asked.name:
        raise NotFound(
            f"The run belongs to another experiment: it is of {of_run!r}, not of {asked.name!r}.",
            remedy=f"Ask {of_run!r}, or run {asked.name!r} first.",
        )
