"""Answering questions: of a living run, of one that has ended, of a recorded one, of a model alone."""

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
from lab.events.recording import Inspection
from lab.experiments.base import Experiment, RunContext, Runner


class Asking:
    """Questions to runs go through the worker, between two slices; those to a model alone need no worker.

    Args:
        recorded: the recorded answer to a question of a run, or None.
        record: told of each answer that a run which has ended gave.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        source: ModelSource,
        *,
        recorded: Callable[[str, str, dict[str, Any]], Answer | None],
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
            return self._cached(key, lambda: self._compute(runner, None, facts, request.name, params))
        run_id = request.run_id
        live = self._scheduler.find(run_id=run_id)
        if live is not None:
            # Not cached: the answer may change while the run goes on.
            return self._through_worker(lambda: self._of_living(live, experiment, runner, request.name, params))
        return self._cached(
            f"{run_id} {asked}", lambda: self._of_ended(run_id, experiment, runner, request.name, params)
        )

    def _of_living(self, live: LiveRun, experiment: Experiment, runner: Runner, name: str, params: Any) -> Answer:
        if live.experiment.name != experiment.name:
            raise NotFound(
                f"The run is of {live.experiment.name!r}, not of {experiment.name!r}.", remedy="Name its experiment."
            )
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
        if kept is not None and kept.experiment == experiment.name:
            answer = self._through_worker(lambda: self._compute(runner, kept.context, kept.facts, name, params))
            self._record(run_id, Inspection(name=name, params=plain, answer=answer))
            return answer
        recorded = self._recorded(run_id, name, plain)
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
