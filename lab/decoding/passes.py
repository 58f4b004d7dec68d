"""One pass of tokens through a model with its cache: the generic way, through transformers' own `forward`.

A pass holds no context between calls; hooks live on a shell of the model that belongs to the run.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from lab.decoding import cache_layout
from lab.decoding.chunks import prefill_chunk
from lab.decoding.tree import Tree, row_positions
from lab.errors import BadInput, ModelError
from lab.models.shell import make_shell


@dataclass(frozen=True)
class Rows:
    """What several tokens gave in one pass; fresh tensors.

    Attributes:
        logits: (row, vocab) fp32: for each row, what may come after it.
        features: (row, hidden), after the last norm: what the head reads. None where the model does not show it.
    """

    logits: Tensor
    features: Tensor | None


class Pass(Protocol):
    """Sends tokens through a model's layers and its cache.

    Attributes:
        name: "transformers" or "llama": which way the tokens go.
        cache: what the layers remember; filled by the calls.
        chunk: prompt tokens that go through at a time.
    """

    name: str
    cache: Cache
    chunk: int

    def __call__(self, ids: Sequence[int], start: int, *, last: bool, attention: bool) -> Tensor | None:
        """Send `ids` through the layers at positions start, start + 1, ...

        Args:
            last: whether the logits of the last token are wanted; else None may come back.
            attention: whether to keep the last token's attention weights for `take_attention`.

        Returns:
            (vocab,) logits in fp32; the next call may write over them.
        """
        ...

    def sliced(
        self, ids: Sequence[int], start: int, *, last: bool, attention: bool
    ) -> Generator[None, None, Tensor | None]:
        """The same as a call, pausing where it can. It enters and leaves inference mode between pauses."""
        ...

    def rows(self, ids: Sequence[int], start: int, *, tree: Tree | None = None, layers: int | None = None) -> Rows:
        """Send a few tokens through and give the logits of every one. Must run inside inference mode.

        Their keys and values are appended to the cache in the order of the rows; `cache_layout.mark` before and
        `cache_layout.keep` after take back those that are not wanted.

        Args:
            ids: the tokens, a few (a prompt goes through a call).
            start: the position of a row without a parent; what the cache holds now.
            tree: how they hang together; None: a chain.
            layers: send them through the first so many layers only, then the last norm and the head; the
                other layers and their caches are not touched. None: all.

        Raises:
            ModelError: this way cannot do it (a tree, or a part of the layers); the reason is named.
        """
        ...

    def sliced_rows(self, ids: Sequence[int], start: int, *, last: int | None = None) -> Generator[None, None, Rows]:
        """The same as `rows` of a chain through all layers, pausing where it can, whatever the number of tokens.

        It enters and leaves inference mode between pauses.

        Args:
            last: give the rows of so many of the last tokens only, 1 or more: the head reads no others. None: of all.
        """
        ...

    def forget(self) -> None:
        """Start again with an empty cache of the same room."""
        ...

    def take_attention(self) -> list[Tensor]:
        """For each traced layer, the (head, position) weights kept by the last call, then forgotten."""
        ...


def last_rows(rows: Rows, last: int | None) -> Rows:
    """The last so many rows; None: all."""
    if last is None:
        return rows
    return Rows(rows.logits[-last:], None if rows.features is None else rows.features[-last:])


def shell_of(model: nn.Module) -> nn.Module:
    """A shell of `model` that keeps the hooks `model` has: the run must compute what it would without the shell."""
    shell = make_shell(model)
    for old, new in zip(model.modules(), shell.modules(), strict=True):
        for hooks in ("_forward_hooks", "_forward_pre_hooks"):
            getattr(new, hooks).update(getattr(old, hooks))
    return shell


class TransformersPass:
    """Any causal model of transformers with an attention key/value cache.

    With `layers` to trace, attention runs eagerly on a shell, since fused kernels give no weights.

    Args:
        model: the model; it is not changed.
        capacity: positions to make room for.
        layers: layers whose attention weights are wanted.
        trim_mask_of: a layer whose cache will be emptied on purpose: its mask is cut to what it still holds.

    Raises:
        ModelError: no attention key/value cache, or no attention weights in a layer.
    """

    name = "transformers"

    def __init__(
        self, model: nn.Module, capacity: int, *, layers: tuple[int, ...] = (), trim_mask_of: int | None = None
    ) -> None:
        self._original, self._capacity = model, capacity
        self.chunk = prefill_chunk(model)
        self._kept: dict[int, Tensor] = {}
        self._keep = False
        self._layers = layers
        self._model = model
        if layers or trim_mask_of is not None:
            self._model = shell_of(model)
        if layers:
            set_attention(self._model, "eager")
            for layer in layers:
                attention_module(self._model, layer).register_forward_hook(self._keeper(layer))
        if trim_mask_of is not None:
            module = attention_module(self._model, trim_mask_of)
            module.register_forward_pre_hook(self._trimmer(trim_mask_of), with_kwargs=True)
        self._device = next(model.parameters()).device
        self._keyword = cache_layout.cache_keyword(model)
        self._options: dict[str, Any] = {"use_cache": True}
        if cache_layout.forward_takes(model, "logits_to_keep"):
            self._options["logits_to_keep"] = 1
        self._takes_positions = cache_layout.forward_takes(model, "position_ids")
        self.forget()

    def sliced(
        self, ids: Sequence[int], start: int, *, last: bool, attention: bool
    ) -> Generator[None, None, Tensor | None]:
        yield from ()  # the model's own forward runs whole
        with torch.inference_mode():
            return self(ids, start, last=last, attention=attention)

    def forget(self) -> None:
        self.cache: Cache = cache_layout.new_cache(self._original, self._capacity)

    def __call__(self, ids: Sequence[int], start: int, *, last: bool, attention: bool) -> Tensor | None:
        self._keep = attention
        self._kept.clear()
        options = {**self._options, self._keyword: self.cache}
        if self._takes_positions:
            options["position_ids"] = torch.arange(start, start + len(ids), device=self._device)[None]
        output = self._model(input_ids=torch.tensor([ids], device=self._device), **options)
        return cache_layout.logits_of(output)[0, -1].float() if last else None

    def rows(self, ids: Sequence[int], start: int, *, tree: Tree | None = None, layers: int | None = None) -> Rows:
        if layers is not None:
            raise ModelError(
                f"A part of the layers of {type(self._original).__name__} cannot be run alone.",
                remedy="Choose another draft, or a Llama-like model.",
            )
        options = {**self._options, self._keyword: self.cache}
        if "logits_to_keep" in options:
            options["logits_to_keep"] = len(ids)
        shape = tree or Tree.chain(len(ids))
        if not shape.is_chain:
            options["attention_mask"] = self._tree_mask(shape, start)
        if self._takes_positions:
            options["position_ids"] = torch.tensor([list(row_positions(shape, start))], device=self._device)
        features: list[Tensor] = []
        shown: Any = getattr(self._model, "get_output_embeddings", None)
        head = shown() if shown is not None else None
        hook = None
        if isinstance(head, nn.Module):
            # Only while this pass runs: nothing is yielded in between.
            hook = head.register_forward_pre_hook(lambda _, args: features.append(args[0]))
        try:
            output = self._model(input_ids=torch.tensor([ids], device=self._device), **options)
        finally:
            if hook is not None:
                hook.remove()
        logits = cache_layout.logits_of(output)[0, -len(ids) :].float()
        return Rows(logits, features[0][0, -len(ids) :] if features else None)

    def sliced_rows(self, ids: Sequence[int], start: int, *, last: int | None = None) -> Generator[None, None, Rows]:
        yield from ()  # the model's own forward runs whole
        with torch.inference_mode():
            return last_rows(self.rows(ids, start), last)

    def _tree_mask(self, tree: Tree, start: int) -> Tensor:
        if not self._takes_positions or len(set(cache_layout.stored_lengths(self.cache))) > 1:
            raise ModelError(
                f"A tree cannot go through {type(self._original).__name__} in one pass: not all of its layers read "
                "the whole text, or it counts the positions itself.",
                remedy="Verify a chain instead.",
            )
        visible = tree.visible(start, self._device)
        dtype = next(self._original.parameters()).dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=self._device)
        return mask.masked_fill_(~visible, torch.finfo(dtype).min)[None, None]

    def check_positions(self) -> None:
        """Refuse to shift positions where the model counts them itself.

        Raises:
            BadInput: `forward` takes no position_ids.
        """
        if not self._takes_positions:
            raise BadInput(
                f"The positions of {type(self._model).__name__} cannot be shifted: its forward takes none.",
                remedy="Choose another mistake.",
            )

    def take_attention(self) -> list[Tensor]:
        kept, self._kept = [self._kept[layer] for layer in self._layers], {}
        return kept

    def _keeper(self, layer: int) -> Any:
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            del inputs
            if not self._keep:
                return
            weights = output[1] if isinstance(output, tuple) and len(output) > 1 else None
            if not isinstance(weights, Tensor):
                raise ModelError(
                    f"Layer {layer} ({type(module).__name__}) gives no attention weights.",
                    remedy="Record without attention.",
                )
            # A copy of the last row alone, so that the block for all rows is not kept alive by it.
            self._kept[layer] = weights[0, :, -1].float().clone()

        return keep

    def _trimmer(self, layer: int) -> Any:
        def trim(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
            del module
            mask = kwargs.get("attention_mask")
            if isinstance(mask, Tensor) and mask.dim() == 4:
                seen = cache_layout.stored_positions(self.cache.layers[layer]) + mask.shape[2]
                kwargs["attention_mask"] = mask[..., -min(seen, mask.shape[3]) :]
            return args, kwargs

        return trim


def set_attention(shell: nn.Module, kind: str) -> None:
    """Choose the attention kernel of a shell, whose config is its own copy."""
    choose: Any = getattr(shell, "set_attn_implementation", None)
    if choose is None:
        raise ModelError(f"{type(shell).__name__} has no choice of attention kernel.", remedy="Use another model.")
    choose(kind)


def attention_module(model: nn.Module, layer: int) -> nn.Module:
    """The attention module of layer `layer`.

    Raises:
        ModelError: there is none that says so.
    """
    for name, module in model.named_modules():
        is_attention = "attention" in type(module).__name__.lower() and "cross" not in name.lower()
        if is_attention and getattr(module, "layer_idx", None) == layer:
            found: nn.Module = module
            return found
    raise ModelError(
        f"No attention module of layer {layer} was found in {type(model).__name__}.",
        remedy="Record without attention.",
    )
