"""The run card of a run that is about to start."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

from lab import __version__
from lab.backend.source import Placement
from lab.events import ModelFacts, RunCard
from lab.experiments.base import ExperimentParams

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    found = [("lab", __version__), ("python", platform.python_version())]
    for name in LIBRARIES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    return tuple(found)


def versions() -> dict[str, str]:
    """Versions of what decides a result. Read from the packages' metadata: nothing is imported."""
    return dict(_versions())


def run_card(experiment: str, facts: ModelFacts, placement: Placement, params: ExperimentParams) -> RunCard:
    """Everything that decides the run's result."""
    return RunCard(
        experiment=experiment,
        model=facts.id,
        weight_hash=facts.weight_hash,
        dtype=placement.dtype,
        device=placement.device,
        attention=placement.attention,
        threads=placement.threads,
        versions=versions(),
        params=params.model_dump(mode="json"),
        files=params.file_hashes(),
    )
