"""What the HTTP app needs of a backend, beyond the protocol that its client sees."""

from __future__ import annotations

from typing import Any, Protocol

from lab.backend.limits import Limits
from lab.backend.log import Subscription
from lab.backend.protocol import DEFAULT_MODEL, Health, InspectRequest, RunRequest
from lab.events import ModelFacts
from lab.experiments.base import Experiment, ExperimentInfo


class Served(Protocol):
    """A `Backend` that says its limits, whose runs can be read without blocking, and that knows a name's facts."""

    limits: Limits

    def health(self) -> Health: ...

    def models(self) -> list[ModelFacts]: ...

    def facts(self, model: str) -> ModelFacts: ...

    def experiment(self, name: str) -> Experiment: ...

    def experiments(self, model: str = DEFAULT_MODEL) -> list[ExperimentInfo]: ...

    def run(self, request: RunRequest) -> Subscription: ...

    def inspect(self, request: InspectRequest) -> dict[str, Any]: ...

    def close(self) -> None: ...
