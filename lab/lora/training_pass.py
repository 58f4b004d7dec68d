"""Forward and backward through a model part by part: first states, each decoder layer, the head over the answers.

A plain training step is one call that nobody can interrupt, and it multiplies the head, its dearest matrix, with every
position. Here each layer is its own small graph: forward keeps its input and output, backward goes layer by layer, so
a step pauses between any two of them; below the lowest adapted layer nothing is kept at all; and the head sees only
the positions whose next token counts, a few at a time. The gradient of the mean cross-entropy with respect to the
logits is (softmax - one-hot) / labels, so no graph of it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lab.errors import ModelError, shown
from lab.lora.adapter import Adapter
from lab.lora.batches import Rows, Tokenized
from lab.models.linear import decoder_layers, output_head
from lab.models.shell import make_shell

HEAD_ROWS = 48
"""Positions that the head multiplies at a time: 9 MiB of logits with 49,152 words."""


class LowRank(nn.Module):
    """A frozen linear module and its factors in training: W x + s B (A x), the second part in fp32.

    Args:
        base: the linear module or Conv1D.
        a, b: (r, in) and (out, r) fp32 parameters.
        scale: s.
    """

    def __init__(self, base: nn.Module, a: nn.Parameter, b: nn.Parameter, scale: float) -> None:
        super().__init__()
        self.base, self.a, self.b, self.scale = base, a, b, scale

    @property
    def weight(self) -> Tensor:
        """The base's: some models read its dtype."""
        found: Tensor = self.base.weight  # type: ignore[assignment]
        return found

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out), in the base's dtype."""
        plain: Tensor = self.base(x)
        low = functional.linear(x.float(), self.a).flatten(0, -2)
        if plain.dtype == torch.float32:
            return torch.addmm(plain.flatten(0, -2), low, self.b.t(), alpha=self.scale).view_as(plain)
        return plain + ((low @ self.b.t()) * self.scale).view_as(plain).to(plain.dtype)


@dataclass
class Kept:
    """What backward needs of one layer: its graph's ends."""

    before: Tensor
    after: Tensor


class TrainingPass:
    """A shell of a model with an adapter's factors as parameters.

    Args:
        model: the base. Read, not changed: its tensors are shared, its modules are not.
        adapter: what training starts from.

    Attributes:
        values: (n,) fp32: all factors in one tensor; each factor is a view. Optimizers change it in place.
        gradient: (n,) fp32: that of `values`; filled by `backward`, to be zeroed by the caller.
        learned: the gradient of the last `loss` with respect to what the head read, None where nothing below learns.

    Raises:
        ModelError: an adapted module lies outside the decoder layers and the head.
    """

    def __init__(self, model: nn.Module, adapter: Adapter) -> None:
        self._shell = make_shell(model).requires_grad_(False)
        self._shell.train(False)
        prefix, stack = decoder_layers(self._shell)
        self._layers: list[nn.Module] = list(stack)
        self._device = next(self._shell.parameters()).device
        self._head_name = _name_of(self._shell, output_head(self._shell))
        self._names = tuple(adapter.tensors)
        self._shapes = tuple(
            (tuple(a.shape), tuple(b.shape)) for a, b in (adapter.tensors[name] for name in self._names)
        )
        parts = [t.flatten() for name in self._names for t in adapter.tensors[name]]
        self.values = torch.cat(parts).to(self._device, torch.float32)  # new already: a module has two parts
        self.gradient = torch.zeros_like(self.values)
        self.lowest = self._lowest(prefix)
        self._hang_in(adapter)
        self._base: Callable[..., Any] = getattr(self._shell, "base_model", self._shell)

    def _lowest(self, prefix: str) -> int:
        lowest = len(self._layers)
        for name in self._names:
            if name.startswith(f"{prefix}."):
                lowest = min(lowest, int(name.removeprefix(f"{prefix}.").partition(".")[0]))
            elif name != self._head_name:
                raise ModelError(
                    f"The target {shown(name)} lies outside the decoder layers and the head.",
                    remedy="Adapt modules of the layers.",
                )
        return lowest

    def _hang_in(self, adapter: Adapter) -> None:
        for name, factors, gradients in zip(
            self._names, self.factors(self.values), self.factors(self.gradient), strict=True
        ):
            a, b = (nn.Parameter(t) for t in factors)  # views: what the optimizer writes into `values` is seen here
            a.grad, b.grad = gradients
            parent, _, own = name.rpartition(".")
            base = self._shell.get_submodule(name)
            setattr(self._shell.get_submodule(parent), own, LowRank(base, a, b, adapter.scale(name)))

    def factors(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Views of a tensor like `values`: the two factors of each module, in the adapter's order."""
        views, at = [], 0
        for a, b in self._shapes:
            middle = at + a[0] * a[1]
            end = middle + b[0] * b[1]
            views.append((flat[at:middle].view(a), flat[middle:end].view(b)))
            at = end
        return views

    @property
    def names(self) -> tuple[str, ...]:
        """The adapted modules, in the order of `factors`."""
        return self._names

    def forward(self, rows: Rows, *, learn: bool) -> Generator[None, None, tuple[Tensor, list[Kept | None]]]:
        """The hidden states after the last layer, and what backward needs; pauses after each layer.

        Args:
            learn: keep what backward needs.

        Returns:
            (label, hidden): of the positions that predict; and for each layer its graph, None where nothing learns.
        """
        hidden, arguments = self._embed(rows)
        kept: list[Kept | None] = []
        for index, layer in enumerate(self._layers):
            args, kwargs = arguments[index]
            wanted = learn and index >= self.lowest
            with torch.set_grad_enabled(wanted):
                before = hidden.detach().requires_grad_(wanted and index > self.lowest)
                output = layer(before, *args, **kwargs)
                after: Tensor = output[0] if isinstance(output, tuple) else output
            kept.append(Kept(before, after) if wanted else None)
            hidden = after.detach()
            yield
        return hidden.flatten(0, 1)[rows.predicts], kept

    def _embed(self, rows: Rows) -> tuple[Tensor, list[tuple[tuple[Any, ...], Mapping[str, Any]]]]:
        calls: list[tuple[Tensor, tuple[Any, ...], Mapping[str, Any]]] = []

        def note(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            calls.append((hidden_states, args, kwargs))
            return hidden_states

        given: dict[str, Any] = {"input_ids": rows.ids, "use_cache": False}
        if rows.position_ids is not None:
            given["position_ids"] = rows.position_ids
        if rows.mask is not None:
            given["attention_mask"] = self._mask(rows.mask)
        with torch.no_grad(), _forwards(self._layers, [note] * len(self._layers)):
            self._base(**given)
        if len(calls) != len(self._layers):
            raise ModelError(
                f"The layers of {type(self._shell).__name__} do not follow one another.", remedy="Train another model."
            )
        return calls[0][0], [(args, kwargs) for _, args, kwargs in calls]

    def _mask(self, mask: Tensor) -> Tensor:
        config: Any = getattr(self._shell, "config", None)
        if getattr(config, "_attn_implementation", "sdpa") == "sdpa":
            return mask
        dtype = next(self._shell.parameters()).dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)

    def plain(self, example: Tokenized) -> Tensor:
        """(label, vocab): what the model itself, called as a whole, says where the example's labels are predicted."""
        ids = torch.tensor([example.ids[:-1]], device=self._device)
        with torch.no_grad():
            output: Any = self._shell(input_ids=ids, use_cache=False)
        found: Tensor = output.logits[0, example.labels_from - 1 :]
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        """(row, vocab): what the model's own norm, head and whatever it does to logits make of (row, hidden) states."""
        passing: list[Callable[..., Tensor]] = [lambda hidden_states, *_, **__: hidden_states] * len(self._layers)
        passing[-1] = lambda *_, **__: hidden[None]
        with _forwards(self._layers, passing):
            output: Any = self._shell(inputs_embeds=hidden.detach()[None], use_cache=False)
        found: Tensor = output.logits[0]
        return found

    def loss(
        self, states: Tensor, targets: Tensor, *, of: int, learn: bool
    ) -> Generator[None, None, tuple[Tensor, Tensor | None]]:
        """The cross-entropy at the positions that predict; pauses twice for every 48 of them.

        Args:
            states: (label, hidden), after the last layer.
            targets: (label,) int64.
            of: labels in the whole batch, by which the sum is divided.

        Returns:
            Its sum divided by `of`, fp32; and its gradient, (label, hidden), None where none is wanted.
        """
        total = torch.zeros((), device=self._device)
        gradients: list[Tensor] = []
        below = learn and self.lowest < len(self._layers)
        for start in range(0, len(targets), HEAD_ROWS):
            wanted = targets[start : start + HEAD_ROWS, None]
            with torch.set_grad_enabled(learn):
                part = states[start : start + HEAD_ROWS].requires_grad_(below)
                logits = self.logits(part)
            yield
            with torch.no_grad():
                log_p = logits.detach().float().log_softmax(-1)
                total -= log_p.gather(1, wanted).sum() / of
                if learn:
                    slope = log_p.exp_()
                    slope.scatter_add_(1, wanted, slope.new_full(wanted.shape, -1.0)).div_(of)
            if learn:
                torch.autograd.backward(logits, slope.to(logits.dtype))
            if below and part.grad is not None:
                gradients.append(part.grad)
            yield
        return total, torch.cat(gradients) if gradients else None

    def backward(self, rows: Rows, kept: Sequence[Kept | None], gradient: Tensor) -> Generator[None, None, None]:
        """Add to `gradient`; pauses after each layer. Each layer's graph is let go as soon as it is used.

        Args:
            gradient: (label, hidden), of the positions that predict, as `loss` returned it.
        """
        flat = gradient.new_zeros(rows.ids.numel(), gradient.shape[-1])
        slope: Tensor | None = flat.index_copy_(0, rows.predicts, gradient).view(*rows.ids.shape, -1)
        for layer in reversed(kept):
            if layer is None:
                break
            torch.autograd.backward(layer.after, slope)
            slope = layer.before.grad
            layer.before, layer.after = flat, flat  # frees the graph
            yield


@contextmanager
def _forwards(layers: Sequence[nn.Module], forwards: Sequence[Callable[..., Tensor]]) -> Iterator[None]:
    """The layers with other `forward` functions, for a moment."""
    for layer, forward in zip(layers, forwards, strict=True):
        layer.forward = forward
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _name_of(shell: nn.Module, module: nn.Module | None) -> str:
    return next((name for name, one in shell.named_modules() if module is not None and one is module), "")
