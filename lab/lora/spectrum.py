"""Singular values of an adapter's updates, what fewer ranks would keep, and where in the model the updates sit.

dW = s B A is never formed: with B = Q R and A^T = P T the singular values are those of the r x r matrix s R T^T.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lab.errors import BadInput, ModelError, shown
from lab.lora.adapter import Adapter, Factors
from lab.models.linear import decoder_layers, is_linear, out_in


@dataclass(frozen=True)
class Spectrum:
    """The update of one module.

    Attributes:
        module: its name.
        values: singular values of dW, falling, as many as its rank.
        weight_norm: |W|, Frobenius; None where the base has no plain weight.
    """

    module: str
    values: tuple[float, ...]
    weight_norm: float | None = None

    @property
    def norm(self) -> float:
        """|dW|, Frobenius."""
        return math.sqrt(sum(value * value for value in self.values))

    @property
    def share(self) -> float | None:
        """|dW| / |W|."""
        return self.norm / self.weight_norm if self.weight_norm else None

    def kept(self, rank: int) -> float:
        """The share of |dW|^2 that the best update of that rank has; 1 for no update."""
        whole = self.norm**2
        return sum(value * value for value in self.values[:rank]) / whole if whole else 1.0

    def error(self, rank: int) -> float:
        """|dW - its best update of that rank| / |dW| (Eckart and Young 1936)."""
        whole = self.norm
        return math.sqrt(sum(value * value for value in self.values[rank:])) / whole if whole else 0.0

    @property
    def effective_rank(self) -> float:
        """exp of the entropy of the values' shares (Roy and Vetterli 2007): 1 if one direction holds all."""
        whole = sum(self.values)
        if not whole:
            return 0.0
        shares = [value / whole for value in self.values if value > 0]
        return math.exp(-sum(share * math.log(share) for share in shares))


@dataclass(frozen=True)
class Place:
    """One cell of the map of layers and projections.

    Attributes:
        layer: index of its decoder layer; None: outside the layers, as the head is.
        projection: the rest of the module's name, "self_attn.q_proj".
        spectrum: of the update there.
    """

    layer: int | None
    projection: str
    spectrum: Spectrum


@dataclass(frozen=True)
class Truncated:
    """An adapter with fewer ranks.

    Attributes:
        adapter: the new one; its scales are those of the old one.
        errors: |dW - dW'| / |dW| by module.
        error: the same over all modules.
    """

    adapter: Adapter
    errors: Mapping[str, float]
    error: float


def spectra(adapter: Adapter, model: nn.Module | None = None) -> list[Spectrum]:
    """The spectrum of each module, in the adapter's order.

    Args:
        model: to read |W| from: the base or a plain shell of it.
    """
    found = []
    for name in adapter.tensors:
        _, values, _ = _decomposed(adapter.tensors[name])
        norm = None if model is None else _weight_norm(model.get_submodule(name))
        found.append(Spectrum(name, tuple((values * abs(adapter.scale(name))).tolist()), norm))
    return found


def places(adapter: Adapter, model: nn.Module) -> list[Place]:
    """Where the update sits: each module's layer, projection and spectrum with |dW| / |W|."""
    try:
        prefix, _ = decoder_layers(model)
    except ModelError:
        prefix = ""
    cell = re.compile(re.escape(prefix) + r"\.([0-9]{1,6})\.(.+)") if prefix else None
    found = []
    for spectrum in spectra(adapter, model):
        match = cell.fullmatch(spectrum.module) if cell else None
        if match:
            found.append(Place(int(match[1]), match[2], spectrum))
        else:
            found.append(Place(None, spectrum.module, spectrum))
    return found


def truncate(adapter: Adapter, rank: int, *, name: str = "") -> Truncated:
    """The best adapter of a lower rank: each update's largest singular values, its factors balanced.

    Args:
        rank: 1 to the adapter's own; a module whose rank is lower keeps its own.
        name: of the new adapter; by default the old one's with the rank.

    Raises:
        BadInput: the rank is not below or at that of the adapter.
    """
    highest = max((a.shape[0] for a, _ in adapter.tensors.values()), default=0)
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= highest:
        raise BadInput(f"The rank {shown(rank)} is not in 1 to {highest}, the adapter's own.", remedy="Choose a lower.")
    tensors: dict[str, Factors] = {}
    alphas: dict[str, float] = {}
    errors: dict[str, float] = {}
    lost = whole = 0.0
    for module, factors in adapter.tensors.items():
        left, values, right = _decomposed(factors)
        keep = min(rank, values.numel())
        roots = values[:keep].sqrt()
        b, a = left[:, :keep] * roots, roots[:, None] * right[:keep]
        tensors[module] = Factors(a.to(factors.a), b.to(factors.b))
        scale = adapter.scale(module)
        alphas[module] = scale * (math.sqrt(keep) if adapter.config.rslora else keep)
        energy = (values * scale).square()
        gone = float(energy[keep:].sum())
        errors[module] = math.sqrt(gone / float(energy.sum())) if gone else 0.0
        lost, whole = lost + gone, whole + float(energy.sum())
    usual = max(alphas.values(), key=list(alphas.values()).count)
    config = replace(adapter.config, rank=rank, alpha=usual)
    others = {module: alpha for module, alpha in alphas.items() if alpha != usual}
    changed = Adapter(name or f"{adapter.name}, rank {rank}", config, tensors, adapter.base, others)
    return Truncated(changed, errors, math.sqrt(lost / whole) if lost else 0.0)


def _decomposed(factors: Factors) -> tuple[Tensor, Tensor, Tensor]:
    """U (out, k), the singular values (k,) and V^T (k, in) of B A, in fp64."""
    q, r = torch.linalg.qr(factors.b.double())
    p, t = torch.linalg.qr(factors.a.double().t())
    u, values, v = torch.linalg.svd(r @ t.t(), full_matrices=False)
    return q @ u, values, v @ p.t()


def _weight_norm(module: nn.Module) -> float | None:
    return float(torch.linalg.vector_norm(out_in(module).float())) if is_linear(module) else None
