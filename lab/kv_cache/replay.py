"""What a finished run's cache can still tell: the exact attention of any step, layer and head.

Keys and values of past tokens never change, so the final cache cut to a step's length is the cache of
that step. One token sent through it up to the layer asked for gives that step's weights again. Sliding
layers drop what no later token can see, so what they held is written down as the run goes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from lab.decoding import cache_layout
from lab.decoding.passes import attention_module, set_attention
from lab.errors import BadInput, Unavailable
from lab.kv_cache.observed import Observation
from lab.models.shell import make_shell

MAX_KEPT_BYTES = 256 * 2**20
_SHELL_BYTES = 2 * 2**20


class _Enough(Exception):
    """Not an error: ends a pass at the layer asked for and carries its weights out."""


class CacheReplay:
    """A run's cache, kept to be asked.

    Call `record` after each step of the run, then ask `attention`.

    Args:
        model: the run's model; it is not changed.
        max_bytes: cap on what is kept. A run above it keeps nothing, and `attention` says so.
    """

    def __init__(self, model: nn.Module, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._model = model
        self._max_bytes = max_bytes
        self._cache: Cache | None = None
        self._steps: list[Observation] = []
        self._history: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self._lost_before: int = 0
        self._shell: nn.Module | None = None
        self.too_large = False

    @property
    def nbytes(self) -> int:
        """Bytes kept: the cache's memory, the sliding layers' history, and a shell's own."""
        if self._cache is None:
            return 0
        history = sum(t.nbytes for pair in self._history.values() for part in pair for t in part)
        return cache_layout.total_bytes(self._cache)[1] + history + _SHELL_BYTES

    def record(self, cache: Cache, step: Observation) -> None:
        """Take note of one step; `cache` is the live cache right after it, always the same one."""
        if self.too_large:
            return
        self._cache = cache
        before = self._steps[-1].stored if self._steps else tuple(due - 1 for due in step.expected)
        if any(n < due and n <= was for n, due, was in zip(step.stored, step.expected, before, strict=True)):
            # A layer lost positions that were due: what passes up to this one read cannot be told any more.
            self._lost_before = len(self._steps) + 1
        self._steps.append(step)
        self._note_sliding(cache, first=len(self._steps) == 1)
        if self.nbytes > self._max_bytes:
            self.too_large = True
            self._cache = None
            self._history.clear()

    def _note_sliding(self, cache: Cache, *, first: bool) -> None:
        for index, layer in enumerate(cache_layout.layer_tensors(cache)):
            if layer.kind != "sliding" or layer.keys is None or layer.values is None:
                continue
            keys, values = self._history.setdefault(index, ([], []))
            with torch.inference_mode():
                newest = slice(None) if first else slice(-1, None)
                keys.append(layer.keys[:, :, newest].clone())
                values.append(layer.values[:, :, newest].clone())

    def attention(self, index: int, layer: int, head: int) -> tuple[Tensor, int]:
        """The attention weights of the newest position in the pass that made new token `index`.

        Recomputed by one pass of that token over the kept cache, with transformers' eager attention.

        Returns:
            (position,) fp32 weights on the CPU, and the position of the first of them. The last is the newest.

        Raises:
            BadInput: no such step, layer or head.
            Unavailable: the run's cache was too large to keep, or a window has dropped what the step saw.
        """
        if self.too_large or self._cache is None:
            raise Unavailable(
                f"This run's cache passed {self._max_bytes / 2**20:,.0f} MiB and was not kept.",
                remedy="Name the layer under 'Attention of layers' and run again, or use a shorter text.",
            )
        _check("new token", index, len(self._steps))
        _check("layer", layer, len(self._cache.layers))
        step = self._steps[index]
        if index < self._lost_before:
            raise Unavailable(
                f"A layer's cache was dropped after new token {self._lost_before - 1}; what was read before is gone.",
                remedy=f"Ask for new token {self._lost_before} or later.",
            )
        weights = self._replay(step, index, layer)
        _check("head", head, weights.shape[0])
        row = weights[head].float().cpu()
        return row, step.length - row.shape[0]

    def _replay(self, step: Observation, index: int, layer: int) -> Tensor:
        with torch.inference_mode():
            cache = self._cache_before(step, index)
            shell = self._eager_shell()
            module = attention_module(shell, layer)
            options: dict[str, Any] = {cache_layout.cache_keyword(shell): cache, "use_cache": True}
            device = next(shell.parameters()).device
            if cache_layout.forward_takes(shell, "position_ids"):
                options["position_ids"] = torch.tensor([[step.fed_position]], device=device)
            hooks = [module.register_forward_hook(_leave)]
            hooks += [
                attention_module(shell, k).register_forward_pre_hook(_Trim(held), with_kwargs=True)
                for k, (held, due) in enumerate(zip(step.stored, step.expected, strict=True))
                if held < due and k <= layer
            ]
            try:
                shell(input_ids=torch.tensor([[step.fed_token_id]], device=device), **options)
            except _Enough as enough:
                weights: Tensor = enough.args[0]
                return weights
            finally:
                for hook in hooks:
                    hook.remove()
        raise Unavailable(f"Layer {layer} of this model gives no attention weights.")

    def _eager_shell(self) -> nn.Module:
        if self._shell is None:
            self._shell = make_shell(self._model)
            set_attention(self._shell, "eager")
        return self._shell

    def _cache_before(self, step: Observation, index: int) -> Cache:
        """The cache as it was when the step's last token came: cut, not copied."""
        assert self._cache is not None  # noqa: S101 - checked by the caller
        cache = cache_layout.new_cache(self._model, 1)
        seen = step.length - 1
        for k, layer in enumerate(cache_layout.layer_tensors(self._cache)):
            if layer.kind == "sliding" and layer.window is not None:
                keys, values = self._sliding_before(k, layer.window, seen, index)
            elif layer.kind == "full" and layer.keys is not None and layer.values is not None:
                held = step.stored[k] - 1
                keys, values = layer.keys[:, :, :held], layer.values[:, :, :held]
            else:
                raise Unavailable(f"Layer {k} keeps its past in a way that cannot be cut to an earlier step.")
            cache_layout.fill_layer(cache, k, keys, values, seen)
        return cache

    def _sliding_before(self, k: int, window: int, seen: int, index: int) -> tuple[Tensor, Tensor]:
        keys, values = (torch.cat(part[: index + 1], dim=2)[:, :, :-1] for part in self._history[k])
        wanted = min(seen, window - 1)
        if keys.shape[2] < wanted:
            raise Unavailable(
                f"Layer {k} sees {window} positions and has dropped the first that new token {index} saw.",
                remedy="Ask for the next token.",
            )
        return keys[:, :, keys.shape[2] - wanted :], values[:, :, values.shape[2] - wanted :]


class _Trim:
    """Cuts a layer's mask to the positions that the layer still holds, as the run did."""

    def __init__(self, positions: int) -> None:
        self._positions = positions

    def __call__(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        del module
        mask = kwargs.get("attention_mask")
        if isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[3] > self._positions:
            kwargs["attention_mask"] = mask[..., -self._positions :]
        return args, kwargs


def _leave(module: nn.Module, args: Any, output: Any) -> None:
    del module, args
    weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
    if isinstance(weights, Tensor):
        raise _Enough(weights[0, :, -1].clone())


def _check(what: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise BadInput(f"There is no {what} {value}: this run has {count}.", remedy=f"Ask for 0 to {count - 1}.")
