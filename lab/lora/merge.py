"""An adapter merged into a shell's own weights: W' = W + factor s B A, and back again, bit for bit.

The shell's module gets a weight of its own and the weight it had is kept, untouched: that is the backup. Subtracting
the update instead would leave rounding errors behind (in fp32 about 1e-8 a cycle, in bf16 about 1e-3).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lab.errors import BadInput, ModelError, shown
from lab.lora.adapter import Adapter, misfit
from lab.lora.attach import LoraLinear, checked_factor
from lab.models.linear import is_linear, out_in, output_head, say_untied, set_weight
from lab.steps import finished


@dataclass(frozen=True)
class MergeFacts:
    """What a merge did.

    Attributes:
        adapter: its name.
        factor: times its own scale.
        base: which weights it was merged into, in words.
        modules: names of those that changed.
        bytes: of the weights that the shell now has of its own.
        untied: whether the output head was tied to the embedding and is now its own.
    """

    adapter: str
    factor: float
    base: str
    modules: tuple[str, ...]
    bytes: int
    untied: bool


class MergedShell:
    """A shell into which one adapter at a time can be merged.

    Args:
        shell: of `make_shell`, without adapters on. The tensors it shares are never written.

    Raises:
        ModelError: the shell has adapters on.
    """

    def __init__(self, shell: nn.Module) -> None:
        self.shell = shell
        self._facts: MergeFacts | None = None
        self._begun = ""
        self._backup: dict[str, nn.Parameter] = {}
        self._ties: list[tuple[Any, Any]] = []
        self._refuse_attached()

    @property
    def merged(self) -> MergeFacts | None:
        """What is merged now, if anything."""
        return self._facts

    def merge(self, adapter: Adapter, factor: float = 1.0) -> MergeFacts:
        """Merge `adapter`, computed in fp32 and rounded once to each weight's own dtype.

        A head that is tied to the embedding gets a weight of its own; the embedding stays as it is.

        Args:
            factor: 0 to 2, times the adapter's own scale.

        Raises:
            BadInput: an adapter is merged already.
            ModelError: it does not fit, or a module has no plain weight to merge into.
        """
        return finished(self.merging(adapter, factor))

    def merging(self, adapter: Adapter, factor: float = 1.0) -> Generator[float, None, MergeFacts]:
        """The same, pausing after each module; yields the share done. Nothing has changed until the last pause.

        From its first step to its end, or until it is closed, no other merge can begin here.

        Raises:
            BadInput, ModelError: see `merge`.
        """
        factor = checked_factor(factor)
        if self._facts is not None:
            raise BadInput(
                f"The adapter {shown(self._facts.adapter)} is merged already.",
                remedy="Unmerge it first: merging twice would add an update twice.",
            )
        if self._begun:
            raise BadInput(f"The adapter {self._begun} is being merged now.", remedy="Wait for its end, or close it.")
        self._begun = shown(adapter.name)
        try:
            return (yield from self._merging(adapter, factor))
        except BaseException:
            self._restore()
            raise
        finally:
            self._begun = ""

    def _merging(self, adapter: Adapter, factor: float) -> Generator[float, None, MergeFacts]:
        self._refuse_attached()
        reason = misfit(adapter, self.shell)
        if reason:
            raise ModelError(f"The adapter {shown(adapter.name)} does not fit: {reason}.", remedy="Load its own base.")
        modules = {name: self.shell.get_submodule(name) for name in adapter.tensors}
        for name, module in modules.items():
            if not is_linear(module):
                raise ModelError(
                    f"{name} is a {type(module).__name__}: it has no plain weight to merge into.",
                    remedy="Merge into the dense model, or leave the adapter unmerged.",
                )
        merged: dict[str, Tensor] = {}
        for name, module in modules.items():
            merged[name] = merged_weight(module, adapter, name, factor)
            yield len(merged) / len(modules)
        self._untie(modules)
        size = 0
        for name, module in modules.items():
            self._backup[name] = module.weight  # type: ignore[assignment]  # a parameter: it is linear
            set_weight(module, merged[name])
            size += module.weight.numel() * module.weight.element_size()  # type: ignore[operator]
        kinds = sorted({str(weight.dtype).removeprefix("torch.") for weight in self._backup.values()})
        self._facts = MergeFacts(
            adapter=adapter.name,
            factor=factor,
            base=f"the model's own {' and '.join(kinds)} weights",
            modules=tuple(modules),
            bytes=size,
            untied=bool(self._ties),
        )
        return self._facts

    def unmerge(self) -> str:
        """Put the weights back that were there before: the same tensors, ties among them. Gives the adapter's name.

        Raises:
            BadInput: nothing is merged.
        """
        if self._facts is None:
            raise BadInput("No adapter is merged.", remedy="Merge one first.")
        name = self._facts.adapter
        self._restore()
        return name

    def _restore(self) -> None:
        for name, weight in self._backup.items():
            self.shell.get_submodule(name).weight = weight
        for config, value in self._ties:
            config.tie_word_embeddings = value
        self._backup.clear()
        self._ties.clear()
        self._facts = None

    def _untie(self, modules: dict[str, nn.Module]) -> None:
        if not tied_head(self.shell, modules):
            return
        config: Any = getattr(self.shell, "config", None)
        parts = [] if config is None else [config, config.get_text_config()]
        self._ties = [(part, getattr(part, "tie_word_embeddings", False)) for part in parts]
        say_untied(self.shell)

    def _refuse_attached(self) -> None:
        if any(isinstance(module, LoraLinear) for module in self.shell.modules()):
            raise ModelError(
                "The shell has adapters on, which would count beside what is merged.", remedy="Merge into a new shell."
            )


def tied_head(model: nn.Module, modules: Iterable[str]) -> bool:
    """Whether the output head is one of `modules` and has the embedding's own weight."""
    head, getter = output_head(model), getattr(model, "get_input_embeddings", None)
    embedding = getattr(getter() if getter is not None else None, "weight", None)
    if head is None or embedding is None or head.weight is not embedding:
        return False
    return any(model.get_submodule(name) is head for name in modules)


def merged_weight(module: nn.Module, adapter: Adapter, name: str, factor: float = 1.0) -> Tensor:
    """(out, in) in the weight's dtype: W + factor s B A, added in fp32 and rounded once.

    Raises:
        ModelError: the update or the sum is not finite in that dtype; the module is named.
    """
    weight = out_in(module)
    with torch.inference_mode(False), torch.no_grad():
        merged = (weight.float() + adapter.delta(name, factor).to(weight.device)).to(weight.dtype)
    if not bool(torch.isfinite(merged.sum(dtype=torch.float32))) and not bool(torch.isfinite(merged).all()):
        kind = str(weight.dtype).removeprefix("torch.")
        raise ModelError(
            f"{name} with the update of the adapter {shown(adapter.name)} is not finite in {kind}.",
            remedy="Leave the adapter unmerged, or merge with a smaller factor.",
        )
    return merged


def difference_in_kind(base: nn.Module, other: nn.Module) -> str:
    """The first module, shape, dtype or place where two models differ. Empty: only values can."""
    mine, theirs = ([(name, type(m)) for name, m in model.named_modules()] for model in (base, other))
    for left, right in zip(mine, theirs, strict=False):
        if left != right:
            return f"{left[0]} is a {left[1].__name__}, and {right[0]} a {right[1].__name__}"
    if len(mine) != len(theirs):
        return f"{len(mine)} modules against {len(theirs)}"
    tensors = [
        {n: (tuple(t.shape), t.dtype, t.device, t.stride()) for n, t in model.state_dict().items()}
        for model in (base, other)
    ]
    for name in tensors[0].keys() | tensors[1].keys():
        if tensors[0].get(name) != tensors[1].get(name):
            return f"{name}: {tensors[0].get(name)} against {tensors[1].get(name)}"
    return ""
