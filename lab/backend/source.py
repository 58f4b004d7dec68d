"""Where a backend gets its models from: the models room, behind a seam that tests can fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lab.events import ModelFacts

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

ProgressCallback = Callable[[str, float | None], None]
"""Told a stage in words and the fraction of it that is done (0..1), or None where that is unknown."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """How a model will be run: the part of the run card that does not come from the model's files.

    Attributes:
        dtype: "float32" or "bfloat16".
        device: "cpu" or "cuda:0 NAME".
        attention: name of the attention kernel.
        threads: threads that torch uses.
    """

    dtype: str
    device: str
    attention: str
    threads: int


class ModelSource(Protocol):
    """Models by id. All methods raise `lab.errors.LabError`; `load` runs on the worker's thread alone."""

    def list(self) -> list[ModelFacts]: ...

    def facts(self, model: str) -> ModelFacts: ...

    def placement(self, facts: ModelFacts, dtype: str, device: str) -> Placement: ...

    def load(self, model: str, placement: Placement, progress: ProgressCallback) -> LoadedModel: ...
