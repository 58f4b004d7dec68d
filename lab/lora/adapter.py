"""A low-rank adapter: its settings, its factors, what it was made for, and whether it can do anything there.

Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models": y = W x + s B (A x), with A (r, in), B (out, r)
and s = alpha / r; Kalajdzievski 2023 (rsLoRA): s = alpha / sqrt(r). W stays frozen; B is zero at first, so that
training starts from the unchanged model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lab.errors import BadInput, ModelError, NotFound, shown
from lab.models.linear import in_features, is_linear, out_in

MAX_RANK = 1024
MAX_ALPHA = 1e6
"""Largest absolute value."""
LEAST_EFFECT = 1e-6
"""|dW| / |W| (Frobenius) up to which an update counts as none: fp32 itself rounds to about 1e-7."""


@dataclass(frozen=True)
class LoraConfig:
    """The settings of an adapter.

    Args:
        rank: r, 1 to 1024; of a module with fewer rows or columns it only wastes memory, and is allowed.
        alpha: scaling constant, -1e6 to 1e6.
        targets: names of modules or the ends of such names ("q_proj", "mlp.up_proj", "lm_head").
        rslora: s = alpha / sqrt(r) instead of alpha / r.

    Raises:
        BadInput: a rank or an alpha out of bounds, or no targets.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]
    rslora: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int) or isinstance(self.rank, bool) or not 1 <= self.rank <= MAX_RANK:
            raise BadInput(f"The rank {shown(self.rank)} is not in 1 to {MAX_RANK}.", remedy="8 is usual.")
        number = isinstance(self.alpha, int | float) and not isinstance(self.alpha, bool)
        if not number or not -MAX_ALPHA <= self.alpha <= MAX_ALPHA:  # no isfinite: an int may be beyond any float
            raise BadInput(
                f"Alpha {shown(self.alpha)} is no number from {-MAX_ALPHA:,.0f} to {MAX_ALPHA:,.0f}.",
                remedy="Twice the rank is usual.",
            )
        if not self.targets or not all(isinstance(target, str) and target for target in self.targets):
            raise BadInput(f"The targets {shown(self.targets)} name no module.", remedy="For instance q_proj, v_proj.")

    @property
    def scale(self) -> float:
        """alpha / r, or alpha / sqrt(r)."""
        return scale_of(self.rank, self.alpha, self.rslora)


class Factors(NamedTuple):
    """The two factors of one module's update, fp32: dW = s B A."""

    a: Tensor
    """(r, in)."""
    b: Tensor
    """(out, r)."""


@dataclass(frozen=True)
class BaseFacts:
    """What an adapter knows of the model it was made for.

    Attributes:
        model_id: how that model was asked for; "" if nobody said.
        shapes: (out, in) of each adapted module, whichever way its weight lies in memory.
        vocabulary: rows of its embedding; None where a file does not tell.
        weight_hash: see `lab.models.weights.weight_hash`; "" if unknown.
        transposed: whether the modules are Conv1Ds, whose weight is (in, out) (peft's `fan_in_fan_out`). The factors
            are the same either way.
    """

    model_id: str
    shapes: Mapping[str, tuple[int, int]]
    vocabulary: int | None = None
    weight_hash: str = ""
    transposed: bool = False


@dataclass(frozen=True)
class Adapter:
    """A low-rank adapter. Nothing writes into its tensors; a changed one is a new `Adapter`.

    Attributes:
        name: as on screen and in a list.
        config: its settings. A module's own rank is that of its factors.
        tensors: the factors of each adapted module by the module's name in the model, fp32.
        base: the model it was made for.
        alphas: of modules whose alpha is another than the config's.
    """

    name: str
    config: LoraConfig
    tensors: Mapping[str, Factors]
    base: BaseFacts
    alphas: Mapping[str, float] = field(default_factory=dict)

    def scale(self, module: str) -> float:
        """s of one module."""
        alpha = self.alphas.get(module, self.config.alpha)
        return scale_of(self.tensors[module].a.shape[0], alpha, self.config.rslora)

    @property
    def parameters(self) -> int:
        """Trained numbers: r (in + out), added over the modules."""
        return sum(a.numel() + b.numel() for a, b in self.tensors.values())

    @property
    def base_parameters(self) -> int:
        """Weights of the matrices that it adapts."""
        return sum(b.shape[0] * a.shape[1] for a, b in self.tensors.values())

    @property
    def share(self) -> float:
        """`parameters` / `base_parameters`; 0.4% for r = 8 in a 4096 x 4096 matrix."""
        return self.parameters / self.base_parameters if self.tensors else 0.0

    @property
    def bytes(self) -> int:
        """Of its factors in memory."""
        return sum(t.numel() * t.element_size() for pair in self.tensors.values() for t in pair)

    def delta(self, module: str, factor: float = 1.0) -> Tensor:
        """(out, in) fp32: factor s B A, the update of one module's weight.

        Raises:
            ModelError: it is not finite, as with factors of 1e30 each.
        """
        a, b = self.tensors[module]
        found = (b @ a) * (self.scale(module) * factor)
        # A sum is finite only if all are, or by overflow; so only a suspect is looked at closely.
        if not bool(torch.isfinite(found.sum())) and not bool(torch.isfinite(found).all()):
            raise not_finite(module, self.name)
        return found


def not_finite(module: str, adapter: str) -> ModelError:
    """The error for factors whose product is beyond fp32."""
    return ModelError(
        f"The update of {module} by the adapter {shown(adapter)} is not finite: its factors are too large.",
        remedy="Train the adapter again, or copy it again.",
    )


def scale_of(rank: int, alpha: float, rslora: bool = False) -> float:
    """alpha / r, or with `rslora` alpha / sqrt(r)."""
    return alpha / math.sqrt(rank) if rslora else alpha / rank


def lora_parameters(rows: int, columns: int, rank: int) -> tuple[int, int]:
    """Numbers of the two factors, and of the matrix.

    >>> lora_parameters(4096, 4096, 8)
    (65536, 16777216)
    """
    return rank * (rows + columns), rows * columns


def target_modules(model: nn.Module, targets: tuple[str, ...]) -> list[str]:
    """The linear modules and Conv1Ds whose name is a target or ends in one, in the model's order.

    Raises:
        NotFound: a target fits no module, or one that is not linear; the message names what there is.
    """
    linear: list[str] = []
    other: list[str] = []
    for name, module in model.named_modules():
        (linear if is_linear(module) else other).append(name)
    found: list[str] = []
    for target in targets:
        fitting = [name for name in linear if _fits(name, target)]
        if not fitting:
            there = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in linear)) or "none"
            what = "is no linear module" if any(_fits(n, target) for n in other) else "fits no module"
            raise NotFound(
                f"The target {shown(target)} {what} of {type(model).__name__}. Its linear modules: {there}.",
                remedy="Name one of those.",
            )
        found += fitting
    chosen = set(found)
    return [name for name in linear if name in chosen]


def new_adapter(
    model: nn.Module,
    config: LoraConfig,
    seed: int,
    *,
    name: str = "new",
    model_id: str = "",
    weight_hash: str = "",
) -> Adapter:
    """An adapter that does nothing yet: A uniform in +-1 / sqrt(in) (Kaiming with a = sqrt(5), as peft), B zero.

    Args:
        model: the base, or a shell of it without adapters on.
        seed: of A; the same on every machine.

    Raises:
        NotFound: a target that fits no linear module.
    """
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for module, (rows, columns) in linear_shapes(model, target_modules(model, config.targets)).items():
        bound = 1 / math.sqrt(columns)
        a = torch.empty(config.rank, columns).uniform_(-bound, bound, generator=random)
        tensors[module] = Factors(a, torch.zeros(rows, config.rank))
    return Adapter(name, config, tensors, base_facts(model, tuple(tensors), model_id=model_id, weight_hash=weight_hash))


def base_facts(model: nn.Module, modules: tuple[str, ...], *, model_id: str = "", weight_hash: str = "") -> BaseFacts:
    """What an adapter of these modules must know of its base."""
    transposed = any(type(model.get_submodule(name)).__name__ == "Conv1D" for name in modules)
    return BaseFacts(model_id, linear_shapes(model, modules), vocabulary_of(model), weight_hash, transposed)


def linear_shapes(model: nn.Module, names: list[str] | tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """(out, in) of linear modules by name."""
    return {name: (out_in(m).shape[0], in_features(m)) for name in names for m in (model.get_submodule(name),)}


def vocabulary_of(model: nn.Module) -> int | None:
    """Rows of the model's embedding, None if it does not say which that is."""
    getter = getattr(model, "get_input_embeddings", None)
    weight = getattr(getter() if getter is not None else None, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) else None


def misfit(adapter: Adapter, model: nn.Module) -> str:
    """Why the adapter does not belong on `model`: names, shapes or vocabulary. Empty if it does."""
    modules = dict(model.named_modules())
    missing = [name for name in adapter.tensors if name not in modules]
    if missing:
        return (
            f"{len(missing)} of its {len(adapter.tensors)} modules are not in {type(model).__name__}: "
            f"{shown(missing[0])} for instance"
        )
    for name, (a, b) in adapter.tensors.items():
        module = modules[name]
        if hasattr(module, "out_features") and hasattr(module, "in_features"):
            there = int(module.out_features), int(module.in_features)  # packed modules, and those with an adapter on
        elif is_linear(module):
            there = int(out_in(module).shape[0]), in_features(module)
        else:
            return f"{name} is a {type(module).__name__}, no linear module"
        if there != (b.shape[0], a.shape[1]):
            return f"{name} is {there[0]} x {there[1]}, its update {b.shape[0]} x {a.shape[1]}"
    made_for, found = adapter.base.vocabulary, vocabulary_of(model)
    if made_for is not None and found is not None and made_for != found:
        return f"it was made for a vocabulary of {made_for:,}, and the model has {found:,}"
    return ""


def effectless(adapter: Adapter, model: nn.Module) -> str:
    """Why the adapter changes nothing in `model`, or must not be put there. Empty if it has an effect."""
    if not adapter.tensors:
        return "it adapts no module"
    reason = misfit(adapter, model)
    if reason:
        return reason
    pairs = adapter.tensors.values()
    if not any(bool(b.any()) for _, b in pairs):
        return "B is zero in all of its modules: it was never trained"
    if not any(bool(a.any()) for a, _ in pairs):
        return "A is zero in all of its modules"
    if not any(adapter.scale(name) for name in adapter.tensors):
        return "its scale is zero"
    largest = 0.0
    for name in adapter.tensors:
        share = _effect(adapter, name, model.get_submodule(name))
        if not share <= LEAST_EFFECT:
            return ""
        largest = max(largest, share)
    if not largest:
        return "B A is zero in all of its modules"
    return f"|dW| is at most {largest:.1g} of |W| in all of its modules: its factors cancel, or are too small"


def _effect(adapter: Adapter, name: str, module: nn.Module) -> float:
    """|dW| / |W|; where there is no plain weight, |dW| / (|s| |B| |A|), which is small where the factors cancel."""
    scale, (a, b) = abs(adapter.scale(name)), adapter.tensors[name]
    left, right = b.double(), a.double()
    size = scale * float((left @ right).norm())
    whole = float(out_in(module).float().norm()) if is_linear(module) else scale * float(left.norm() * right.norm())
    if not size or not whole:
        return math.inf if size else 0.0
    return size / whole


def _fits(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")
