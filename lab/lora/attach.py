"""Adapters on a shell, unmerged: y = W x + factor s B (A x), the active one and the factor read at each call.

The factors stay fp32 whatever the model's dtype, and W may be packed: nothing of it is rounded. A model with adapters
on still goes through the fast decode path: see `token.py` beside this file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lab.decoding.matvec import matvecs
from lab.decoding.products import linear_rows
from lab.errors import BadInput, ModelError, NotFound, shown
from lab.lora.adapter import Adapter, Factors, misfit

MAX_FACTOR = 2.0
"""Of the scale, at most: twice what was trained."""


class Control:
    """Which adapter is on, and how much of it; one object is shared by all modules of a shell.

    Attributes:
        active: its name, None: the base alone.
        factor: times its own scale.
        version: counts what was put on and taken off.
    """

    def __init__(self) -> None:
        self.active: str | None = None
        self.factor = 1.0
        self.version = 0


class LoraLinear(nn.Module):
    """A linear module with adapters beside it.

    Args:
        base: an `nn.Linear`, a Conv1D or a packed module; called as it stands.
        shape: its (out, in).
        control: shared.
    """

    def __init__(self, base: nn.Module, shape: tuple[int, int], control: Control) -> None:
        super().__init__()
        self.base = base
        self.out_features, self.in_features = shape
        self.control = control
        self.pairs: dict[str, tuple[Factors, float]] = {}
        """Factors on the module's device, and s, by the adapter's name."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out), of the dtype that the base gives."""
        y: Tensor = self.base(x)
        return self._updated(x, y)

    def linear_rows(self, x: Tensor) -> Tensor:
        """The same as `lab.decoding.products.linear_rows` computes it: its base is as fast as without adapters."""
        return self._updated(x, linear_rows(self.base, x))

    def now(self) -> tuple[Factors, float] | None:
        """What is to be added now: the factors, and factor s. None: nothing."""
        control = self.control
        pair = None if control.active is None else self.pairs.get(control.active)
        if pair is None or not (scale := pair[1] * control.factor):
            return None
        return pair[0], scale

    def _updated(self, x: Tensor, y: Tensor) -> Tensor:
        found = self.now()
        if found is None:
            return y
        (a, b), scale = found
        update = functional.linear(functional.linear(x.float(), a), b)
        return torch.add(y.float(), update, alpha=scale).to(y.dtype)

    @staticmethod
    def token_products(
        modules: Sequence[LoraLinear], x: Tensor, y: Tensor, *, add: bool
    ) -> list[Callable[[], None]] | None:
        """One token through modules that read the same, from one fixed buffer into another: see `matvecs`.

        None where their hooks or several shells forbid it.
        """
        if len({id(module.control) for module in modules}) > 1:
            return None
        from lab.lora.token import TokenUpdate

        return [*matvecs([module.base for module in modules], x, y, add=add), TokenUpdate(modules, x, y)]

    def token_product(self, x: Tensor, y: Tensor, *, add: bool) -> Callable[[], None]:
        """The same for this module alone."""
        products = self.token_products([self], x, y, add=add)
        assert products is not None  # noqa: S101 - one module has one control

        def product() -> None:
            for part in products:
                part()

        return product

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}, adapters={list(self.pairs)}"


class Attached:
    """Adapters on a shell: put on, switched, scaled and taken off without touching a weight.

    Args:
        shell: of `make_shell`; its linear modules are wrapped where an adapter needs it. Never the shared model.
        adapters: to put on; none is active at first.

    Raises:
        ModelError: an adapter does not fit the shell, or the shell has adapters on already.
        BadInput: two adapters of one name.
    """

    def __init__(self, shell: nn.Module, adapters: Sequence[Adapter] = ()) -> None:
        if any(isinstance(module, LoraLinear) for module in shell.modules()):
            raise ModelError("The shell has adapters on already.", remedy="Use what put them there, or a new shell.")
        self.shell = shell
        self._control = Control()
        self._adapters: dict[str, Adapter] = {}
        self._wrapped: dict[str, LoraLinear] = {}
        for adapter in adapters:
            self.add(adapter)

    @property
    def adapters(self) -> dict[str, Adapter]:
        """Those that are on, by name."""
        return dict(self._adapters)

    @property
    def active(self) -> str | None:
        """The name of the one that counts; None: the base alone. Switching takes effect at the next call."""
        return self._control.active

    @active.setter
    def active(self, name: str | None) -> None:
        if name is not None and name not in self._adapters:
            there = ", ".join(map(repr, self._adapters)) or "none"
            raise NotFound(f"There is no adapter {shown(name)} here: {there}.", remedy="Add it first.")
        self._control.active = name

    @property
    def factor(self) -> float:
        """How much of the active adapter counts: 0 nothing, 1 as trained, 2 twice."""
        return self._control.factor

    @factor.setter
    def factor(self, factor: float) -> None:
        self._control.factor = checked_factor(factor)

    @contextlib.contextmanager
    def using(self, name: str | None, factor: float = 1.0) -> Iterator[nn.Module]:
        """The shell with one adapter on for a while. Not to be held across a `yield` of a generator that pauses."""
        before = self.active, self.factor
        try:
            self.active, self.factor = name, factor
            yield self.shell
        finally:
            self._control.active = before[0] if before[0] in self._adapters else None
            self._control.factor = before[1]

    def add(self, adapter: Adapter) -> None:
        """Put one more on. It does nothing until it is active.

        Raises:
            ModelError: names, shapes or vocabulary are not those of the shell.
            BadInput: there is one of that name.
        """
        if adapter.name in self._adapters:
            raise BadInput(f"There is an adapter {shown(adapter.name)} already.", remedy="Give it another name.")
        reason = misfit(adapter, self.shell)
        if reason:
            raise ModelError(
                f"The adapter {shown(adapter.name)} does not fit: {reason}.", remedy="Load the model it was made for."
            )
        for name, (a, b) in adapter.tensors.items():
            wrapped = self._wrapped.get(name)
            if wrapped is None:
                wrapped = LoraLinear(self.shell.get_submodule(name), (b.shape[0], a.shape[1]), self._control)
                wrapped.train(self.shell.training)
                self.shell.set_submodule(name, wrapped)
                self._wrapped[name] = wrapped
            device = _device(wrapped.base)
            wrapped.pairs[adapter.name] = Factors(a.to(device), b.to(device)), adapter.scale(name)
        self._adapters[adapter.name] = adapter
        self._control.version += 1

    def remove(self, name: str) -> None:
        """Take one off; if it was active, the base alone is. A module without adapters is its plain self again.

        A pass that was made before (a `LlamaPass` of the shell) then computes what the base computes.

        Raises:
            NotFound: there is none of that name.
        """
        if name not in self._adapters:
            raise NotFound(f"There is no adapter {shown(name)} here.", remedy="Name one that was added.")
        if self.active == name:
            self._control.active = None
        del self._adapters[name]
        for path, wrapped in list(self._wrapped.items()):
            wrapped.pairs.pop(name, None)
            if not wrapped.pairs:
                self.shell.set_submodule(path, wrapped.base)
                del self._wrapped[path]
        self._control.version += 1

    def detach(self) -> nn.Module:
        """Take all off: the shell has the very modules it had."""
        for name in list(self._adapters):
            self.remove(name)
        self._control.factor = 1.0
        return self.shell


def checked_factor(factor: float) -> float:
    """A factor of the scale, 0 to 2.

    Raises:
        BadInput: it is outside.
    """
    if isinstance(factor, bool) or not isinstance(factor, int | float) or factor != factor:
        raise BadInput(f"The factor {shown(factor)} is no number.", remedy=f"Choose 0 to {MAX_FACTOR:g}.")
    if not 0 <= factor <= MAX_FACTOR:  # an int may be beyond any float
        raise BadInput(
            f"The factor {shown(factor)} is not in 0 to {MAX_FACTOR:g}.", remedy="1 is the adapter as trained."
        )
    return float(factor)


def _device(base: nn.Module) -> torch.device:
    weight = getattr(base, "weight", None)
    return weight.device if isinstance(weight, Tensor) else torch.device("cpu")  # packed modules are on the CPU
