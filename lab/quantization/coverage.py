"""What of a model was really quantized, what was not and why, and what all of it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from lab.models.untouched import Skipped, untouched
from lab.quantization.quantized import Storage


@dataclass(frozen=True)
class Coverage:
    """Every parameter of a quantized model, once.

    Attributes:
        parameters: of the quantized model; a head that was untied counts beside the embedding.
        quantized: of them quantized.
        untied: whether a head was untied for it.
        skipped: those that stayed dense, with reasons.
        dense_bytes: of the model it was made from, in its dtype, tied tensors once.
        bytes: of the quantized model: codes with all overhead, and what stayed dense in its dtype.
    """

    parameters: int
    quantized: int
    untied: bool
    skipped: tuple[Skipped, ...]
    dense_bytes: int
    bytes: int

    @property
    def share(self) -> float:
        """Of the parameters, quantized: 0 to 1."""
        return self.quantized / self.parameters

    @property
    def bits_per_parameter(self) -> float:
        """Of the whole model, dense parts in it."""
        return 8 * self.bytes / self.parameters


def coverage_of(model: nn.Module, shell: nn.Module, storages: Mapping[str, Storage]) -> Coverage:
    """Count a shell in which the modules `storages` are quantized, and the model it was made from."""
    rest = untouched(model, shell, storages)
    return Coverage(
        parameters=rest.parameters,
        quantized=sum(storage.weights for storage in storages.values()),
        untied=rest.untied,
        skipped=rest.skipped,
        dense_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        bytes=rest.bytes + sum(storage.bytes for storage in storages.values()),
    )
