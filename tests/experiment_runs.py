"""Driving an experiment in tests, without a backend: a run to its end, and questions to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lab.events import Event, Proof
from lab.experiments.base import ExperimentParams, Outcome, RunContext, Runner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

E = TypeVar("E", bound=Event)


@dataclass
class Ran:
    """A run to its end. `slices` counts all yields, those without an event too."""

    runner: Runner
    context: RunContext
    events: list[Event]
    outcome: Outcome
    slices: int

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def proof(self) -> Proof:
        (proof,) = self.of(Proof)
        return proof

    def ask(self, name: str, **params: Any) -> dict[str, Any]:
        question = self.runner.inspections[name](**params)
        return self.runner.inspect(self.context, self.context.model.facts, name, question)


def run_experiment(runner: Runner, model: LoadedModel, params: ExperimentParams) -> Ran:
    """Run it as a backend does: first what the model cannot do is refused, then the generator goes to its end."""
    (ran,) = run_in_turns(runner, model, [params])
    return ran


def run_in_turns(runner: Runner, model: LoadedModel, settings: Sequence[ExperimentParams]) -> list[Ran]:
    """The same for several runs on one model, which take turns slice by slice."""
    for params in settings:
        runner.prepare(model.facts, params)
    contexts = [RunContext(model=model) for _ in settings]
    running = {i: runner.run(contexts[i], params) for i, params in enumerate(settings)}
    events: list[list[Event]] = [[] for _ in settings]
    slices, outcomes = [0] * len(settings), dict[int, Outcome]()
    while running:
        for i, generator in list(running.items()):
            try:
                event = next(generator)
            except StopIteration as stop:
                outcomes[i] = stop.value
                del running[i]
                continue
            slices[i] += 1
            if event is not None:
                events[i].append(event)
    return [Ran(runner, contexts[i], events[i], outcomes[i], slices[i]) for i in range(len(settings))]
