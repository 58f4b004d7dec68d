"""The protocol between a view and the models, whichever way the two are joined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from lab.events import Event, ModelFacts
from lab.experiments.base import ExperimentInfo

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run asked for. `params` is validated against the experiment's schema by the backend.

    Attributes:
        dtype: "auto", "float32" or "bfloat16".
        device: "auto", "cpu" or "cuda".
        fresh: run even if a recording of the same card exists.
    """

    experiment: str
    params: dict[str, Any] = field(default_factory=dict)
    model: str = DEFAULT_MODEL
    dtype: str = "auto"
    device: str = "auto"
    fresh: bool = False


@dataclass(frozen=True, kw_only=True)
class InspectRequest:
    """A bounded question: of a run (`run_id`), or of the model alone."""

    experiment: str
    name: str
    params: dict[str, Any] = field(default_factory=dict)
    run_id: str | None = None
    model: str = DEFAULT_MODEL


@dataclass(frozen=True, kw_only=True)
class Health:
    """How the model process is. Bytes; seconds."""

    version: str
    pid: int
    uptime_s: float
    models_loaded: tuple[str, ...]
    runs_active: int
    runs_waiting: int
    resident_bytes: int
    free_bytes: int
    device: str
    threads: int


class RunStream(Protocol):
    """A run's events as they come, ended by exactly one final event whatever happens.

    The first is `run_started`, with the run card. `queued` and `loading` tell of the wait; where the weights
    are not yet on this machine there is no card to begin with, and they come before `run_started`.

    `close` may be called from any thread, more than once. Before the end it gives the run up (unless others
    read the same run); an iteration under way then ends with `run_cancelled`.
    """

    def __iter__(self) -> Iterator[Event]: ...

    def close(self) -> None: ...


class Backend(Protocol):
    """Runs experiments. All methods raise `lab.errors.LabError` with words for a person."""

    def health(self) -> Health: ...

    def models(self) -> list[ModelFacts]: ...

    def experiments(self, model: str = DEFAULT_MODEL) -> list[ExperimentInfo]: ...

    def run(self, request: RunRequest) -> RunStream: ...

    def inspect(self, request: InspectRequest) -> dict[str, Any]: ...

    def close(self) -> None: ...
