"""The models room as a `ModelSource`. torch is imported when a model or a placement is first asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lab.backend.source import Placement, ProgressCallback
from lab.events import ModelFacts

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

log = logging.getLogger(__name__)


class ModelRoom:
    """Packaged models, directories, GGUF files and hub ids, by `lab.models.registry`."""

    def list(self) -> list[ModelFacts]:
        from lab.models.registry import list_models

        return list_models()

    def facts(self, model: str) -> ModelFacts:
        from lab.models.registry import find_facts

        return find_facts(model)

    def placement(self, facts: ModelFacts, dtype: str, device: str) -> Placement:
        import torch
        import transformers

        from lab.models.loading import DTYPES, choose_device

        where, kind = choose_device(device, dtype)
        label = str(where) if where.type == "cpu" else f"{where} {torch.cuda.get_device_name(where)}"
        name = next(name for name, value in DTYPES.items() if value is kind)
        # The rule by which the models room chooses when it loads.
        cls = getattr(transformers, facts.architecture, None)
        attention = "sdpa" if getattr(cls, "_supports_sdpa", False) else "eager"
        return Placement(dtype=name, device=label, attention=attention, threads=torch.get_num_threads())

    def load(self, model: str, placement: Placement, progress: ProgressCallback) -> LoadedModel:
        from lab.models.registry import load_model

        device = placement.device.partition(" ")[0]
        loaded = load_model(model, dtype=placement.dtype, device=device, progress=progress)
        attention = getattr(loaded.model.config, "_attn_implementation", placement.attention)
        if attention != placement.attention:
            log.warning("%s runs with attention %r, its run card says %r", model, attention, placement.attention)
        return loaded
