"""The same model with another cache, by formula: curves over the context against this machine's free memory.

Nothing runs and nothing is measured: every figure is derived from shapes. No torch here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lab.errors import BadInput
from lab.kv_cache.formula import (
    CacheDtype,
    LayerShape,
    bytes_per_token,
    cache_bytes,
    cache_dtype,
    with_kv_heads,
    with_window,
)
from lab.kv_cache.presets import KNOWN_MODELS

MAX_CONTEXT = 131_072
_SEARCH_LIMIT = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Bytes of one cache over the context.

    Attributes:
        group: "model" (as it is), "heads", "window", "dtype" or "known" (another model).
        bytes: for each of the answer's contexts.
        bytes_per_token: of one sequence, while no window is full.
        fits: the longest context whose cache fits into the free memory; None if every context does (all
            layers have windows, and they fit).
        beyond_context: from which context on the model was not made for; None if it never is.
        note: what was changed or where the figures come from.
    """

    id: str
    name: str
    group: str
    dtype: str
    bytes: tuple[int, ...]
    bytes_per_token: int
    fits: int | None
    beyond_context: int | None
    note: str


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """All curves over the same contexts. Sizes in bytes; DERIVED, nothing measured but `free_bytes`."""

    contexts: tuple[int, ...]
    batch: int
    window: int
    free_bytes: int
    curves: tuple[Curve, ...]


def log_contexts(longest: int, points: int = 48) -> tuple[int, ...]:
    """Contexts from 1 to `longest`, spread evenly on a logarithmic axis, the ends and powers of two among them."""
    if longest < 1:
        raise BadInput(f"A context has at least 1 position, got {longest}.")
    spread = {round(math.exp(math.log(longest) * i / max(points - 1, 1))) for i in range(points)}
    powers = {1 << i for i in range(longest.bit_length()) if 1 << i <= longest}
    return tuple(sorted(spread | powers | {1, longest}))


def longest_that_fits(layers: tuple[LayerShape, ...], dtype: CacheDtype, batch: int, free_bytes: int) -> int | None:
    """The longest context whose cache takes at most `free_bytes`, or None if any does."""
    if cache_bytes(layers, _SEARCH_LIMIT, dtype, batch=batch) <= free_bytes:
        return None
    low, high = 0, _SEARCH_LIMIT  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if cache_bytes(layers, middle, dtype, batch=batch) <= free_bytes:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, kw_only=True)
class _Plan:
    id: str
    name: str
    group: str
    layers: tuple[LayerShape, ...]
    dtype: CacheDtype
    context: int
    note: str


def what_if(
    *,
    name: str,
    layers: tuple[LayerShape, ...],
    query_heads: int,
    context: int,
    dtype: str,
    free_bytes: int,
    batch: int = 1,
    window: int = 1024,
    longest: int = MAX_CONTEXT,
) -> WhatIf:
    """The curves for a model of `layers`, and those of known models.

    Args:
        context: positions the model is made for.
        dtype: of the cached elements, a key of `CACHE_DTYPES`; known models are drawn with it too.
        free_bytes: this machine's free memory.
        longest: the end of the context axis, up to 128k positions.

    Raises:
        BadInput: batch, window or longest below 1, longest above 128k, or an unknown dtype.
    """
    if batch < 1 or window < 1:
        raise BadInput(f"Batch and window are at least 1, got {batch} and {window}.")
    if longest > MAX_CONTEXT:
        raise BadInput(f"The context goes up to {MAX_CONTEXT:,} positions, got {longest:,}.")
    contexts = log_contexts(longest)
    own = cache_dtype(dtype)
    base = _Plan(
        id="model",
        name=name,
        group="model",
        layers=layers,
        dtype=own,
        context=context,
        note="as it is, with this cache dtype",
    )
    plans = [base]
    if any(layer.kind in ("full", "sliding") for layer in layers):
        plans += [
            replace(
                base,
                id="all_heads",
                name=f"all {query_heads} query heads as key/value heads",
                group="heads",
                layers=with_kv_heads(layers, query_heads),
                note="multi-head attention",
            ),
            replace(
                base,
                id="one_head",
                name="one key/value head",
                group="heads",
                layers=with_kv_heads(layers, 1),
                note="multi-query attention",
            ),
            replace(
                base,
                id="window",
                name=f"every layer with a window of {window:,}",
                group="window",
                layers=with_window(layers, window),
                note="a token sees itself and the positions before it, as many as the window holds",
            ),
        ]
    plans += [
        replace(
            base, id=other, name=f"{other} cache", group="dtype", dtype=cache_dtype(other), note=cache_dtype(other).note
        )
        for other in ("bfloat16", "int8", "int4")
        if other != dtype
    ]
    plans += [
        _Plan(id=k.id, name=k.name, group="known", layers=k.layers, dtype=own, context=k.context, note=k.source)
        for k in KNOWN_MODELS
    ]
    return WhatIf(
        contexts=contexts,
        batch=batch,
        window=window,
        free_bytes=free_bytes,
        curves=tuple(_curve(plan, contexts, batch, free_bytes) for plan in plans),
    )


def _curve(plan: _Plan, contexts: tuple[int, ...], batch: int, free_bytes: int) -> Curve:
    return Curve(
        id=plan.id,
        name=plan.name,
        group=plan.group,
        dtype=plan.dtype.name,
        bytes=tuple(cache_bytes(plan.layers, length, plan.dtype, batch=batch) for length in contexts),
        bytes_per_token=bytes_per_token(plan.layers, plan.dtype),
        fits=longest_that_fits(plan.layers, plan.dtype, batch, free_bytes),
        beyond_context=plan.context if plan.context < contexts[-1] else None,
        note=plan.note,
    )
