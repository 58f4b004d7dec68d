"""Driving the `kv_cache` experiment in tests, without a backend."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lab.events import Event, Proof
from lab.experiments.base import Outcome, RunContext
from lab.experiments.kv_cache.params import KVCacheParams
from lab.experiments.kv_cache.run import KVCacheRunner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

E = TypeVar("E", bound=Event)


@dataclass
class Ran:
    """A run to its end. `slices` counts all yields, those without an event too."""

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
        runner = KVCacheRunner()
        question = runner.inspections[name](**params)
        return runner.inspect(self.context, self.context.model.facts, name, question)


def run_to_end(model: LoadedModel, **params: Any) -> Ran:
    """Run the experiment with these parameters."""
    context = RunContext(model=model)
    generator = KVCacheRunner().run(context, KVCacheParams(**params))
    events: list[Event] = []
    slices = 0
    while True:
        try:
            event = next(generator)
        except StopIteration as stop:
            return Ran(context, events, stop.value, slices)
        slices += 1
        if event is not None:
            events.append(event)


def hooks_on(model: Any) -> int:
    """Hooks on any module of `model`."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def reference_threads() -> list[threading.Thread]:
    """Threads of `generate()` that live."""
    return [t for t in threading.enumerate() if t.name == "lab-reference"]
