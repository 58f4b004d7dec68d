"""What finished runs leave behind for `inspect`, bounded by bytes."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from lab.events import ModelFacts
from lab.experiments.base import RunContext


@dataclass(frozen=True)
class KeptRun:
    """A finished run that can still be asked."""

    experiment: str
    facts: ModelFacts
    context: RunContext
    bytes: int


def size_of(value: Any, apart_from: object = None) -> int:
    """Bytes that `value` holds: arrays and tensors by their own count, containers by what is in them, each thing once.

    Args:
        apart_from: not counted though it is referred to: the model, which is held anyway.
    """
    return _size(value, {id(apart_from)} if apart_from is not None else set())


def _size(value: Any, seen: set[int]) -> int:
    if id(value) in seen:
        return 0
    seen.add(id(value))
    held = getattr(value, "nbytes", None)
    if isinstance(held, int):
        return held
    own = sys.getsizeof(value)
    if isinstance(value, dict):
        return own + sum(_size(k, seen) + _size(v, seen) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return own + sum(_size(item, seen) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return own + sum(_size(getattr(value, f.name), seen) for f in dataclasses.fields(value))
    if hasattr(value, "__dict__"):
        return own + _size(vars(value), seen)
    return own


class KeptRuns:
    """Runs that can still be asked, the oldest first to go. Not safe between threads: the scheduler locks."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._runs: OrderedDict[str, KeptRun] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Bytes held now."""
        return sum(run.bytes for run in self._runs.values())

    def get(self, run_id: str) -> KeptRun | None:
        """The run, if it is still there."""
        return self._runs.get(run_id)

    def add(self, run_id: str, run: KeptRun) -> None:
        """Keep `run`, dropping the oldest until all fit; one that alone does not fit is not kept."""
        if run.bytes > self.max_bytes:
            return
        self._runs[run_id] = run
        while self.bytes > self.max_bytes:
            self._runs.popitem(last=False)

    def drop_model(self, model: object) -> None:
        """Forget the runs of a model that is leaving memory: they would hold it."""
        for run_id in [k for k, run in self._runs.items() if run.context.model is model]:
            del self._runs[run_id]

    def clear(self) -> None:
        """Forget all: memory is short."""
        self._runs.clear()
