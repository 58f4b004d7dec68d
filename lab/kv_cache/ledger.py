"""What a live cache holds, counted from its tensors, beside what the formula says it should hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache

from lab.decoding.cache_layout import LayerTensors, layer_tensors
from lab.errors import ModelError
from lab.kv_cache.formula import CacheDtype, Keeping, LayerShape, cache_dtype


@dataclass(frozen=True)
class LedgerRow:
    """One layer at one moment. Sizes in bytes.

    Attributes:
        kind: as the model's facts say: "full", "sliding", "latent" or "none".
        positions: how many positions the tensors hold.
        expected_positions: how many the formula says after as many tokens; -1 where it says nothing.
        bytes: of the key and value tensors that hold positions.
        formula_bytes: by the formula, 0 where it says nothing.
        reserved_bytes: of the memory behind the tensors, room for later tokens included.
    """

    kind: str
    positions: int
    expected_positions: int
    bytes: int
    formula_bytes: int
    reserved_bytes: int


def read_ledger(
    cache: Cache, shapes: Sequence[LayerShape], length: int, dtype: torch.dtype, *, batch: int = 1
) -> list[LedgerRow]:
    """Count a cache's tensors, layer by layer, and set the formula beside them.

    The formula's side comes from the shapes, the length and the dtype alone; the tensors are looked at for
    one thing only: whether a sliding layer is kept by a cache that drops old positions or by one that keeps all.

    Args:
        shapes: the model's layers, from its facts.
        length: positions that have gone through the model.
        dtype: of the run.

    Raises:
        ModelError: the cache has another number of layers than the facts.
    """
    tensors = layer_tensors(cache)
    if len(tensors) != len(shapes):
        raise ModelError(f"The cache has {len(tensors)} layers; the model's facts name {len(shapes)}.")
    element = cache_dtype(str(dtype).removeprefix("torch."))
    return [_row(t, shape, length, element, batch) for t, shape in zip(tensors, shapes, strict=True)]


def _row(tensors: LayerTensors, shape: LayerShape, length: int, dtype: CacheDtype, batch: int) -> LedgerRow:
    keeping: Keeping = "dynamic" if tensors.kind == "sliding" else "everything"
    known = shape.kind != "none"
    return LedgerRow(
        kind=shape.kind,
        positions=tensors.positions,
        expected_positions=shape.positions(length, keeping) if known else -1,
        bytes=tensors.bytes,
        formula_bytes=shape.bytes(length, dtype, batch=batch, keeping=keeping),
        reserved_bytes=tensors.reserved_bytes,
    )
