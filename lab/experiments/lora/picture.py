"""Where an adapter's update sits and how its singular values fall, as events; and the adapter with fewer of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import nn

from lab.errors import BadInput
from lab.events import ArrayData
from lab.events.lora import UpdateMap, UpdateSpectrum
from lab.experiments.compared.progress import Made, progress
from lab.experiments.compared.targets import find_targets
from lab.experiments.lora.kept import Kept
from lab.lora.adapter import Adapter
from lab.lora.spectrum import Spectrum, Truncated, spectra, truncate

MOST_VALUES = 128
"""Singular values that are shown of each update: the largest."""


def picturing(adapter: Adapter, model: nn.Module, kept: Kept | None = None) -> Made[None]:
    """Yield the map and the spectrum of an adapter, as it is stored.

    Args:
        kept: for questions: gets the singular values.
    """
    places = {target.name: (target.layer, target.projection) for target in find_targets(model)}
    layers = 1 + max((layer for layer, _ in places.values()), default=-1)
    found: list[tuple[int, str, Spectrum]] = []
    for number, (name, factors) in enumerate(adapter.tensors.items()):
        alphas = {name: adapter.alphas[name]} if name in adapter.alphas else {}
        (spectrum,) = spectra(replace(adapter, tensors={name: factors}, alphas=alphas), model)
        found.append((*places.get(name, (-1, name.rpartition(".")[2])), spectrum))
        yield progress("singular values", number + 1, len(adapter.tensors)) if number % 8 == 7 else None
    ordered = {place: number for number, place in enumerate(places.values())}
    found.sort(key=lambda one: ordered.get(one[:2], len(ordered)))
    order = dict.fromkeys(projection for _, projection in places.values())
    there = {projection for layer, projection, _ in found if layer >= 0}
    projections = tuple(name for name in order if name in there)
    norms = np.full((layers, len(projections)), np.nan, dtype=np.float32)
    for layer, projection, spectrum in found:
        if layer >= 0 and spectrum.share is not None:
            norms[layer, projections.index(projection)] = spectrum.share
    yield UpdateMap(adapter=adapter.name, projections=projections, norms=ArrayData.of(norms, "float32"))
    yield _spectrum(adapter, found)
    if kept is not None:
        kept.spectrum = [(layer, projection, one.values) for layer, projection, one in found]


def _spectrum(adapter: Adapter, found: list[tuple[int, str, Spectrum]]) -> UpdateSpectrum:
    width = min(MOST_VALUES, max((len(one.values) for _, _, one in found), default=0))
    values = np.zeros((len(found), width), dtype=np.float32)
    errors = np.zeros((len(found), width + 1), dtype=np.float32)
    for row, (_, _, one) in enumerate(found):
        shown = one.values[:width]
        values[row, : len(shown)] = shown
        errors[row] = [one.error(rank) for rank in range(width + 1)]
    return UpdateSpectrum(
        adapter=adapter.name,
        modules=tuple((layer, projection) for layer, projection, _ in found),
        values=ArrayData.of(values, "float32"),
        kept_error=ArrayData.of(errors, "float32"),
    )


def highest_rank(adapter: Adapter) -> int:
    """The rank of its largest factors."""
    return max(a.shape[0] for a, _ in adapter.tensors.values())


def check_kept_rank(adapter: Adapter, keep: int) -> None:
    """Refuse to keep more singular values than there are.

    Raises:
        BadInput: with the adapter's rank.
    """
    if keep > highest_rank(adapter):
        raise BadInput(
            f"{keep} singular values cannot be kept of {adapter.name}: its rank is {highest_rank(adapter)}.",
            remedy=f"Keep at most {highest_rank(adapter)}, or 0 for all.",
        )


def truncating(adapter: Adapter, keep: int) -> Made[tuple[Adapter, float]]:
    """The adapter with its largest singular values only, and |dW - dW'| / |dW| over all modules; 0 keeps all."""
    if not keep or keep >= highest_rank(adapter):
        return adapter, 0.0
    parts: dict[str, Truncated] = {}
    lost = whole = 0.0
    for name, factors in adapter.tensors.items():
        alphas = {name: adapter.alphas[name]} if name in adapter.alphas else {}
        alone = replace(adapter, tensors={name: factors}, alphas=alphas)
        parts[name] = truncate(alone, min(keep, factors.a.shape[0]), name=adapter.name)
        energy = spectra(alone)[0].norm ** 2
        lost, whole = lost + parts[name].error ** 2 * energy, whole + energy
        yield None
    tensors = {name: part.adapter.tensors[name] for name, part in parts.items()}
    alphas = {name: part.adapter.config.alpha for name, part in parts.items()}
    usual = max(alphas.values(), key=list(alphas.values()).count)
    made = replace(
        adapter,
        config=replace(adapter.config, rank=keep, alpha=usual),
        tensors=tensors,
        alphas={name: alpha for name, alpha in alphas.items() if alpha != usual},
    )
    return made, (lost / whole) ** 0.5 if whole else 0.0
