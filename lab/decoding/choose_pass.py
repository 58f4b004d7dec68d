"""Which way the tokens of a run go: the fast path where it fits, else the model's own forward."""

from __future__ import annotations

from torch import nn

from lab.decoding import cache_layout
from lab.decoding.llama import LlamaPass
from lab.decoding.llama_fits import why_not
from lab.decoding.passes import Pass, TransformersPass
from lab.errors import ModelError


def choose_pass(model: nn.Module, capacity: int, *, layers: tuple[int, ...], fast: bool | None, mistake: str) -> Pass:
    """A pass for one run, with an empty cache.

    Args:
        capacity: positions to make room for.
        layers: layers whose attention weights are wanted.
        fast: None: the fast path where it fits; False: never; True: refuse where it does not fit.
        mistake: the run's deliberate mistake.

    Raises:
        ModelError: no attention key/value cache, or `fast` is True and the fast path does not fit.
        BadInput: the mistake cannot be made with this model.
    """
    if fast is not False:
        reason = why_not(model)
        if not reason:
            return LlamaPass(model, capacity, layers=layers)
        if fast:
            raise ModelError(f"The fast path does not fit: {reason}.", remedy="Leave the choice of path open.")
    trimmed = None
    if mistake == "drop_layer_cache":
        trimmed = cache_layout.layer_to_empty(cache_layout.new_cache(model, 1))
    generic = TransformersPass(model, capacity, layers=layers, trim_mask_of=trimmed)
    if mistake == "shift_positions":
        generic.check_positions()
    return generic
