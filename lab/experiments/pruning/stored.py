"""Bytes of pruned matrices in each form that could hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.events.pruning import StoredBytes, StoredForm
from lab.experiments.pruning.settings import Scheme
from lab.pruning.storage import LAYOUTS, Counted, Layout, Stored, store_all

WORDS: dict[Layout, str] = {
    "dense": "every weight, zeros among them",
    "bitmap": "one bit a weight and the kept values",
    "csr": "the kept values, a column number for each, and the start of each row",
    "nm": "N values of each M and the place of each in its group",
    "rows": "the rows and columns that are left, dense",
}


@dataclass(frozen=True)
class KeptCounts:
    """One pruned matrix: its shape, weights and rows that are kept."""

    name: str
    rows: int
    columns: int
    kept: int
    kept_rows: int


def stored_bytes(scheme: Scheme, scope: str, matrices: Sequence[KeptCounts], value_bytes: int) -> StoredBytes:
    """The event. Of heads and channels, the columns that read a removed row are gone too."""
    n, m = scheme.n_of_m
    counted = [
        Counted(name=one.name, rows=one.rows, columns=one.columns, kept=one.kept, kept_rows=one.kept_rows, n=n, m=m)
        for one in matrices
    ]
    found = store_all(counted, value_bytes * 8)
    kept = sum(one.kept for one in matrices)
    removed = scheme.method == "rows"
    return StoredBytes(
        setting=scheme.setting,
        scope=scope,
        weights=sum(one.rows * one.columns for one in matrices),
        kept=kept,
        value_bytes=value_bytes,
        forms=tuple(
            form(one, scheme.pattern, removed_bytes=kept * value_bytes if removed else None) for one in found.values()
        ),
        break_even=break_evens(found, scheme.pattern),
    )


def form(one: Stored, pattern: str, *, removed_bytes: int | None = None) -> StoredForm:
    """One layout as it travels.

    Args:
        removed_bytes: of the smaller dense matrices, where whole rows and columns were removed.
    """
    valid, size, words = not one.unfit, one.bytes, WORDS[one.layout]
    if one.layout == "rows":
        valid = removed_bytes is not None or one.bytes < one.dense_bytes
        size = one.bytes if removed_bytes is None else removed_bytes
        words += "" if valid else "; every row keeps some of its weights, so no row can be left out"
    elif one.unfit:
        words += "; no such pattern holds, so it stays dense"
    return StoredForm(layout_name(one.layout, pattern), size, valid, words)


def break_evens(found: dict[Layout, Stored], pattern: str) -> tuple[tuple[str, float], ...]:
    """Of each form that has one the sparsity from which on it is smaller than dense."""
    return tuple(
        (layout_name(layout, pattern), one.break_even) for layout, one in found.items() if one.break_even is not None
    )


def layout_name(layout: Layout, pattern: str) -> str:
    """As `StoredBytes` names it."""
    if layout != "nm":
        return LAYOUTS[layout]
    return f"{'2:4' if pattern == 'none' else pattern} packed"
