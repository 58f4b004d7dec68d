"""Driving the `kv_cache` experiment in tests, without a backend."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from experiment_runs import Ran, run_experiment

from lab.experiments.kv_cache.params import KVCacheParams
from lab.experiments.kv_cache.run import KVCacheRunner

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel


def run_to_end(model: LoadedModel, **params: Any) -> Ran:
    """Run the experiment with these parameters."""
    return run_experiment(KVCacheRunner(), model, KVCacheParams(**params))


def hooks_on(model: Any) -> int:
    """Hooks on any module of `model`."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def reference_threads() -> list[threading.Thread]:
    """Threads of `generate()` that live."""
    return [t for t in threading.enumerate() if t.name == "lab-reference"]
