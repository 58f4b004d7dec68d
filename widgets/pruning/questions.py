"""What the page asks of the model beside its run, and how answers are read."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from lab.events.array import ArrayData
from widgets.asked import Answer
from widgets.pruning.mask_bits import MaskBits
from widgets.pruning.mask_view import Values, Window
from widgets.pruning.method_marks import heading_of
from widgets.pruning.state import Matrix

QUICK = ("random", "magnitude")
"""Methods quick enough to answer while a slider moves."""


def mask_question(matrix: Matrix, method: str, sparsity: float, *, scope: str, seed: int) -> dict[str, Any]:
    """The mask of a quick method at any sparsity."""
    asked = {"layer": matrix.layer, "projection": matrix.projection, "method": method, "sparsity": round(sparsity, 4)}
    return {**asked, "scope": scope, "seed": seed}


def read_mask(answer: Answer) -> MaskBits:
    """The mask that was answered.

    Raises:
        KeyError, TypeError, ValueError: it cannot be drawn.
    """
    method, rows, columns = str(answer["method"]), int(answer["rows"]), int(answer["columns"])
    label = answer.get("label") or f"{heading_of(method)}, {float(answer['sparsity']) * 100:.3g} %"
    bits = answer["bits"]
    if isinstance(bits, str):
        shape = (rows, -(-columns // 8))
        bits = {"dtype": "uint8", "shape": list(shape), "base64": bits}
    mask = MaskBits(method, str(label), rows, columns, ArrayData.from_json(bits), live=True)
    if not mask.fits:
        raise ValueError("the bits of a mask do not fit its shape")
    return mask


def values_question(matrix: Matrix, window: Window) -> dict[str, Any]:
    """The weights of the part on screen."""
    place = {"row": window.row, "column": window.column, "rows": window.rows, "columns": window.columns}
    return {"layer": matrix.layer, "projection": matrix.projection, **place}


def read_values(answer: Answer) -> Values:
    """The weights that were answered.

    Raises:
        KeyError, TypeError, ValueError: they cannot be drawn.
    """
    row, column, rows, columns = (int(answer[key]) for key in ("row", "column", "rows", "columns"))
    found = answer["values"]
    if isinstance(found, dict):
        found = base64.b64encode(ArrayData.from_json(found).data).decode("ascii")
    try:
        size = len(base64.b64decode(found, validate=True))
    except binascii.Error as error:
        raise ValueError(f"values are not base64: {error}") from None
    if size != rows * columns:
        raise ValueError(f"{size} values are no part of {rows} x {columns}")
    return Values(row, column, rows, columns, found, float(answer["scale"]))
