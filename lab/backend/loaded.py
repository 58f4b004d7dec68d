"""Models in memory: read-only, shared by all runs, the least recently used first to go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from lab.backend.source import ModelSource, Placement, ProgressCallback

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

ModelKey = tuple[str, str, str]
"""Model id, dtype, device."""


class LoadedModels:
    """Loaded models, for the worker's thread alone.

    Args:
        limit: how many stay in memory. A model that a run uses is never dropped.
        dropped: told of each model that leaves.
    """

    def __init__(self, source: ModelSource, limit: int, dropped: Callable[[LoadedModel], None]) -> None:
        self._source = source
        self._limit = limit
        self._dropped = dropped
        self._models: OrderedDict[ModelKey, LoadedModel] = OrderedDict()

    def names(self) -> tuple[str, ...]:
        """Ids of the models in memory, the most recently used last."""
        return tuple(dict.fromkeys(key[0] for key in tuple(self._models)))

    def get(self, model: str, placement: Placement, progress: ProgressCallback, in_use: set[ModelKey]) -> LoadedModel:
        """The model, loaded if needed.

        Room is made before loading: two models that do not fit together are never in memory together.

        Args:
            in_use: models of active runs, which stay.

        Raises:
            LabError: it cannot be loaded.
        """
        key = (model, placement.dtype, placement.device)
        found = self._models.get(key)
        if found is not None:
            self._models.move_to_end(key)
            return found
        idle = [k for k in self._models if k not in in_use]
        while idle and len(self._models) >= self._limit:
            self._drop(idle.pop(0))
        loaded = self._source.load(model, placement, progress)
        self._models[key] = loaded
        return loaded

    def clear(self, in_use: set[ModelKey]) -> None:
        """Drop all models that no run uses: memory is short."""
        for key in [k for k in self._models if k not in in_use]:
            self._drop(key)

    def _drop(self, key: ModelKey) -> None:
        self._dropped(self._models.pop(key))
