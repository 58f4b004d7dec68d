"""Merging where weights are rounded: into bf16, or into codes. What of the update survives.

Two bases can be meant, and they give different models: the rounded weights, R(R(W) + dW), which is all that is at hand
where only the quantized model is; or the original ones, R(W + dW). Unmerged, the adapter runs beside R(W). So the
update that a merge applies is what it makes of R(W), and the loss is how far that is from dW.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn

from lab.calibration.inputs import LayerInputs
from lab.errors import BadInput, ModelError, shown
from lab.lora.adapter import Adapter, misfit
from lab.lora.attach import checked_factor
from lab.lora.merge import tied_head
from lab.models.linear import is_linear, out_in, say_untied, set_weight
from lab.models.shell import make_shell
from lab.quantization.method import Method

Base = Literal["rounded", "original"]
BASES: tuple[Base, ...] = ("rounded", "original")


@dataclass(frozen=True)
class Rounded:
    """A matrix as it counts after rounding.

    Attributes:
        values: (out, in) fp32.
        codes: (out, in) integers, None where rounding has none.
    """

    values: Tensor
    codes: Tensor | None = None


class Rounder(Protocol):
    """How weights are rounded; `label` as on screen, `base` the rounded weights in words."""

    @property
    def label(self) -> str: ...

    @property
    def base(self) -> str: ...

    def round(self, name: str, weight: Tensor) -> Generator[float, None, Rounded]:
        """Round a module's (out, in) fp32 weight; yields the share done."""
        ...


@dataclass(frozen=True)
class ToBfloat16:
    """To the nearest bf16: 8 bits of mantissa, so a change below about 0.4% of a weight is lost or doubled."""

    label: str = "bf16"
    base: str = "the weights rounded to bf16"

    def round(self, name: str, weight: Tensor) -> Generator[float, None, Rounded]:
        del name
        yield 0.0
        return Rounded(weight.bfloat16().float())


@dataclass(frozen=True)
class ToCodes:
    """Through the codes of a quantization method.

    Args:
        method: of `lab.quantization`.
        inputs: calibration inputs by module name, where the method wants them.
        title: as on screen; by default the method's own label, which names no bits.
    """

    method: Method
    inputs: Mapping[str, LayerInputs] | None = None
    title: str = ""

    @property
    def label(self) -> str:
        return self.title or self.method.label

    @property
    def base(self) -> str:
        return f"the weights dequantized from codes ({self.label})"

    def round(self, name: str, weight: Tensor) -> Generator[float, None, Rounded]:
        quantized = yield from self.method.quantize(weight, (self.inputs or {}).get(name))
        return Rounded(quantized.dequantize().float(), quantized.tensors().get("codes"))


@dataclass(frozen=True)
class ModuleRounding:
    """What rounding made of one update. `applied` is W' - R(W), `dW` what it should be.

    Attributes:
        module: its name.
        entries: of dW that are not zero.
        vanished: of those, where W' = R(W): nothing happened.
        update_energy: |dW|^2.
        error_energy: |applied - dW|^2.
        largest_update: max |dW|.
        largest_error: max |applied - dW|.
        codes_changed: codes that are not those of R(W), None where there are none. Scales may change as well.
    """

    module: str
    entries: int
    vanished: int
    update_energy: float
    error_energy: float
    largest_update: float
    largest_error: float
    codes_changed: int | None

    @property
    def lost(self) -> float:
        """The error's energy as a share of the update's: 0 is exact, 1 as bad as merging nothing; it can be above 1."""
        if not self.update_energy:
            return 0.0 if not self.error_energy else math.inf
        return self.error_energy / self.update_energy


@dataclass(frozen=True)
class RoundedMerge:
    """A merge with rounding.

    Attributes:
        rounding: the rounder's label.
        base: which weights it was merged into, in words.
        unmerged: a shell with R(W) in the adapted modules: what the adapter runs beside.
        merged: a shell with W'.
        modules: one each.
    """

    rounding: str
    base: str
    unmerged: nn.Module
    merged: nn.Module
    modules: tuple[ModuleRounding, ...]

    @property
    def lost(self) -> float:
        """As `ModuleRounding.lost`, over all modules."""
        whole = sum(m.update_energy for m in self.modules)
        error = sum(m.error_energy for m in self.modules)
        if not whole:
            return 0.0 if not error else math.inf
        return error / whole

    @property
    def vanished(self) -> float:
        """The share of the updates' nonzero entries that did nothing."""
        entries = sum(m.entries for m in self.modules)
        return sum(m.vanished for m in self.modules) / entries if entries else 0.0

    @property
    def largest_error(self) -> float:
        """Over all modules."""
        return max((m.largest_error for m in self.modules), default=0.0)


Merging = Generator[float, None, RoundedMerge]


def merging_rounded(
    model: nn.Module, adapter: Adapter, rounder: Rounder, *, base: Base = "rounded", factor: float = 1.0
) -> Merging:
    """Merge with rounding; yields the share done (0 to 1).

    Args:
        model: dense; not changed. A quantized model's shell of dequantized weights may be given as well.
        base: "rounded": R(R(W) + dW); "original": R(W + dW). A head tied to the embedding gets its own weight.
        factor: 0 to 2, times the adapter's own scale.

    Raises:
        ModelError: the adapter does not fit, or a module is packed.
        BadInput: an unknown base, a factor out of bounds, or a method that refuses a matrix.
    """
    if base not in BASES:
        raise BadInput(f"The base {shown(base)} is unknown.", remedy=f"Choose {' or '.join(BASES)}.")
    factor = checked_factor(factor)
    reason = misfit(adapter, model)
    if reason:
        raise ModelError(f"The adapter {shown(adapter.name)} does not fit: {reason}.", remedy="Load its own base.")
    packed = [name for name in adapter.tensors if not is_linear(model.get_submodule(name))]
    if packed:
        kind = type(model.get_submodule(packed[0])).__name__
        raise ModelError(f"{packed[0]} is a {kind}, no plain weight.", remedy="Give the dense model.")
    return _merging(model, adapter, rounder, base, factor)


def _merging(model: nn.Module, adapter: Adapter, rounder: Rounder, base: Base, factor: float) -> Merging:
    unmerged, merged = make_shell(model), make_shell(model)
    if tied_head(model, adapter.tensors):
        for shell in (unmerged, merged):
            say_untied(shell)
    results = []
    steps = 2 * len(adapter.tensors)
    for index, name in enumerate(adapter.tensors):
        weight = out_in(model.get_submodule(name)).float()
        before = yield from _shared(rounder.round(name, weight), 2 * index, steps)
        update = adapter.delta(name, factor).to(weight.device)
        start = before.values if base == "rounded" else weight
        after = yield from _shared(rounder.round(name, start + update), 2 * index + 1, steps)
        results.append(_measured(name, update, before, after))
        set_weight(unmerged.get_submodule(name), before.values)
        set_weight(merged.get_submodule(name), after.values)
    dtypes = {str(out_in(model.get_submodule(name)).dtype).removeprefix("torch.") for name in adapter.tensors}
    kinds = " and ".join(sorted(dtypes))
    words = rounder.base if base == "rounded" else f"the original {kinds} weights, then rounded ({rounder.label})"
    return RoundedMerge(rounder.label, words, unmerged, merged, tuple(results))


def _shared(work: Generator[float, None, Rounded], step: int, steps: int) -> Generator[float, None, Rounded]:
    while True:
        try:
            share = next(work)
        except StopIteration as end:
            result: Rounded = end.value
            yield (step + 1) / steps
            return result
        yield (step + share) / steps


def _measured(name: str, update: Tensor, before: Rounded, after: Rounded) -> ModuleRounding:
    applied = after.values.double() - before.values.double()
    error = applied - update.double()
    there = update != 0
    changed = None
    if before.codes is not None and after.codes is not None:
        changed = int((before.codes != after.codes).sum())
    return ModuleRounding(
        module=name,
        entries=int(there.sum()),
        vanished=int((there & (applied == 0)).sum()),
        update_energy=float(update.double().square().sum()),
        error_energy=float(error.square().sum()),
        largest_update=float(update.abs().max()),
        largest_error=float(error.abs().max()),
        codes_changed=changed,
    )
