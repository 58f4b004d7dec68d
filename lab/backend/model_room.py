"""The models room as a `ModelSource`. torch is imported when a model or a placement is first asked for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backend.source import Placement, ProgressCallback
from lab.events import ModelFacts

if TYPE_CHECKING:
    from lab.models.loading import LoadedModel

log = logging.getLogger(__name__)


class ModelRoom:
    """Packaged models, directories, GGUF files and hub ids, by `lab.models.registry`; and quantized directories.

    A directory that was loaded is listed with the others from then on.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, None] = {}

    def list(self) -> list[ModelFacts]:
        from lab.experiments.registry import with_experiments
        from lab.models.registry import list_models

        return [with_experiments(facts) for facts in list_models(tuple(self._loaded))]

    def facts(self, model: str) -> ModelFacts:
        from lab.experiments.registry import with_experiments
        from lab.models.registry import find_facts
        from lab.quantization.card import facts_of_quantized

        directory = _quantized(model)
        return with_experiments(find_facts(model) if directory is None else facts_of_quantized(directory))

    def placement(self, facts: ModelFacts, dtype: str, device: str) -> Placement:
        import torch

        from lab.models.loading import DTYPES, attention_of, choose_device

        where, kind = choose_device(device, dtype)
        label = str(where) if where.type == "cpu" else f"{where} {torch.cuda.get_device_name(where)}"
        name = next(name for name, value in DTYPES.items() if value is kind)
        return Placement(dtype=name, device=label, attention=attention_of(facts), threads=torch.get_num_threads())

    def load(self, model: str, placement: Placement, progress: ProgressCallback) -> LoadedModel:
        from lab.models.registry import load_model

        device = placement.device.partition(" ")[0]
        directory = _quantized(model)
        if directory is None:
            loaded = load_model(model, dtype=placement.dtype, device=device, progress=progress)
            if loaded.facts.source == "directory":
                self._loaded[model] = None
        else:
            from lab.quantization.load import load_quantized

            progress("loading the quantized weights", None)
            found = load_quantized(directory, dtype=placement.dtype, device=device)
            log.info("%s runs %s", model, found.label)
            loaded = found.loaded
        attention = getattr(loaded.model.config, "_attn_implementation", placement.attention)
        if attention != placement.attention:
            log.warning("%s runs with attention %r, its run card says %r", model, attention, placement.attention)
        return loaded


def _quantized(model: str) -> Path | None:
    """The directory that `model` names, if `lab quantize` wrote it."""
    from lab.quantization.card import is_quantized

    try:
        path = Path(model).expanduser()
        return path if is_quantized(path) else None
    except (OSError, RuntimeError, ValueError):  # no path at all
        return None
