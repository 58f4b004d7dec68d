"""The models room as a `ModelSource`. torch is imported when a model or a placement is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.backend.source import Placement, ProgressCallback
from lab.events import ModelFacts

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel


class ModelRoom:
    """Packaged models, directories, GGUF files and hub ids, by `lab.models.registry`."""

    def list(self) -> list[ModelFacts]:
        from lab.models.registry import list_models

        return list_models()

    def facts(self, model: str) -> ModelFacts:
        from lab.models.registry import find_facts

        return find_facts(model)

    def placement(self, facts: ModelFacts, dtype: str, device: str) -> Placement:
        del facts
        import torch

        from lab.models.loading import ATTENTION, DTYPES, choose_device

        where, kind = choose_device(device, dtype)
        label = str(where) if where.type == "cpu" else f"{where} {torch.cuda.get_device_name(where)}"
        name = next(name for name, value in DTYPES.items() if value is kind)
        return Placement(dtype=name, device=label, attention=ATTENTION, threads=torch.get_num_threads())

    def load(self, model: str, placement: Placement, progress: ProgressCallback) -> LoadedModel:
        from lab.models.registry import load_model

        device = placement.device.partition(" ")[0]
        return load_model(model, dtype=placement.dtype, device=device, progress=progress)
