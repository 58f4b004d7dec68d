"""How many bytes pruned matrices take, in the formats that could hold them. By count alone, no torch here.

A dense matrix takes the same bytes however many zeros it has; only another format saves. Of v bits a value:

- bitmap: one bit a weight (each row fills whole bytes, as in `mask_bits`) and the kept values.
- CSR: the kept values, the column of each (int16 below 32,768 columns, else int32), and the start of each row (int32,
  one more than there are rows).
- N:M packed: n values of every m, zeros among them if fewer are kept, and the place of each in its group: 2 bits for
  m = 4, 3 for m = 8.
- rows removed: the rows that still have weights, dense. That the reader of this output loses the same columns is
  counted with that reader.

Each is linear in the share that is kept, so that break-even with dense is one division.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lab.errors import BadInput, shown

Layout = Literal["dense", "bitmap", "csr", "nm", "rows"]
LAYOUTS: dict[Layout, str] = {
    "dense": "dense",
    "bitmap": "bitmap + values",
    "csr": "CSR",
    "nm": "N:M packed",
    "rows": "rows removed",
}
VALUE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16}
NARROW_COLUMNS = 32_768
"""CSR's columns take int16 below it."""
POINTER_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A matrix of a model, as counted.

    Attributes:
        name: of its module.
        rows, columns: (out, in); a vector has one row.
        kept: weights that are not pruned.
        kept_rows: rows that have any of them; as many as there are rows if it is not given.
        n, m: the pattern that its mask was checked to have; 0 and 0 for none.
        dense: why it is not pruned and stays dense in every format; "" if it is pruned.

    Raises:
        BadInput: counts that no matrix has.
    """

    name: str
    rows: int
    columns: int
    kept: int
    kept_rows: int | None = None
    n: int = 0
    m: int = 0
    dense: str = ""

    def __post_init__(self) -> None:
        kept_rows = self.rows if self.kept_rows is None else self.kept_rows
        object.__setattr__(self, "kept_rows", kept_rows)
        fits = self.rows > 0 and self.columns > 0 and 0 <= kept_rows <= self.rows
        if not fits or not 0 <= self.kept <= kept_rows * self.columns:
            raise BadInput(
                f"{self.name} of {shown(self.rows)} x {shown(self.columns)} cannot keep {shown(self.kept)} weights in "
                f"{shown(kept_rows)} rows.",
                remedy="Count the mask again.",
            )
        if self.m and (not 0 < self.n < self.m or self.columns % self.m):
            raise BadInput(
                f"{self.name}: rows of {self.columns} weights have no groups {self.n}:{self.m}.",
                remedy="Give 0 and 0 for a mask without a pattern.",
            )

    @property
    def weights(self) -> int:
        """Of the whole matrix."""
        return self.rows * self.columns


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Bytes of a matrix or a model in one format.

    Attributes:
        layout: see `LAYOUTS`.
        bytes: of everything; `dense_bytes` where the format does not fit.
        dense_bytes: of the same, dense.
        fixed_bytes: that do not depend on how many weights are kept; matrices that stay dense are among them.
        full_bytes: besides, if every weight were kept.
        unfit: why the format does not fit a matrix; "" if it fits all. What does not fit stays dense.
    """

    layout: Layout
    bytes: int
    dense_bytes: int
    fixed_bytes: int
    full_bytes: int
    unfit: str = ""

    @property
    def share(self) -> float:
        """Of the dense bytes; below 1 it saves."""
        return self.bytes / self.dense_bytes

    @property
    def break_even(self) -> float | None:
        """The sparsity above which it takes fewer bytes than dense, if all pruned matrices have it.

        None where no sparsity saves, or nothing changes with it. Of N:M: with any n, the m being the same.
        """
        if not self.full_bytes or self.layout == "dense" or self.fixed_bytes >= self.dense_bytes:
            return None
        return max(0.0, 1 - (self.dense_bytes - self.fixed_bytes) / self.full_bytes)


def store(matrix: Counted, value_bits: int = 32) -> dict[Layout, Stored]:
    """The bytes of one matrix in each format.

    Args:
        value_bits: of a weight: 8, 16 or 32.

    Raises:
        BadInput: another number of bits.
    """
    if value_bits not in (8, 16, 32):
        raise BadInput(
            f"Weights have 8, 16 or 32 bits, not {shown(value_bits)}.", remedy="Choose 16 for BF16 and FP16."
        )
    value = value_bits // 8
    whole = matrix.weights * value

    def made(layout: Layout, size: int, fixed: int, full: int, unfit: str = "") -> Stored:
        return Stored(layout=layout, bytes=size, dense_bytes=whole, fixed_bytes=fixed, full_bytes=full, unfit=unfit)

    dense = made("dense", whole, 0, whole)
    if matrix.dense:
        return {layout: made(layout, whole, whole, 0) for layout in LAYOUTS} | {"dense": dense}
    bitmap = matrix.rows * -(-matrix.columns // 8)
    wide = value + index_bytes(matrix.columns)
    pointers = POINTER_BYTES * (matrix.rows + 1)
    if matrix.m:
        place = (matrix.m - 1).bit_length()  # bits
        held = matrix.weights // matrix.m * matrix.n
        nm = made("nm", _packed(held, value_bits, place), 0, _packed(matrix.weights, value_bits, place))
    else:
        nm = made("nm", whole, whole, 0, f"{matrix.name} has no N:M pattern.")
    kept_rows = matrix.kept_rows or 0
    return {
        "dense": dense,
        "bitmap": made("bitmap", bitmap + matrix.kept * value, bitmap, whole),
        "csr": made("csr", pointers + matrix.kept * wide, pointers, matrix.weights * wide),
        "nm": nm,
        "rows": made("rows", kept_rows * matrix.columns * value, 0, whole),
    }


def store_all(matrices: Iterable[Counted], value_bits: int = 32) -> dict[Layout, Stored]:
    """The bytes of a model in each format: the sums, what stays dense among them.

    A tied matrix is one matrix: give it once.

    Raises:
        BadInput: no matrices, or see `store`.
    """
    each = [store(matrix, value_bits) for matrix in matrices]
    if not each:
        raise BadInput("There are no matrices to count.", remedy="Give at least one.")
    return {layout: _total([one[layout] for one in each]) for layout in LAYOUTS}


def index_bytes(columns: int) -> int:
    """Of a column's number in CSR."""
    return 2 if columns < NARROW_COLUMNS else 4


def _packed(values: int, value_bits: int, place_bits: int) -> int:
    return -(-values * (value_bits + place_bits) // 8)


def _total(parts: list[Stored]) -> Stored:
    unfit = [part.unfit for part in parts if part.unfit]
    more = f" So it is with {len(unfit)} of {len(parts)} matrices." if len(unfit) > 1 else ""
    return Stored(
        layout=parts[0].layout,
        bytes=sum(part.bytes for part in parts),
        dense_bytes=sum(part.dense_bytes for part in parts),
        fixed_bytes=sum(part.fixed_bytes for part in parts),
        full_bytes=sum(part.full_bytes for part in parts),
        unfit=f"{unfit[0]}{more}" if unfit else "",
    )
