"""Which group sizes a matrix can have, and which of them are compared."""

from __future__ import annotations

from lab.experiments.quantization.choices import GROUP_SIZES, GroupSize, divides

MOST = 6
PREFERRED: tuple[GroupSize, ...] = ("row", "64", "32", "16", "128", "256", "512", "192", "288", "96", "384")
"""As the run prefers them."""


def weights_of(share: str, columns: int) -> int:
    """How many weights share a scale, for putting group sizes in order."""
    if share == "tensor":
        return 1 << 40
    return columns if share == "row" else int(share.partition("+")[0])


def fitting(columns: int) -> list[str]:
    """All group sizes of rows of `columns` weights, the coarsest first."""
    fit = [size for size in GROUP_SIZES if divides(size, columns) and size != str(columns)]
    return sorted(fit, key=lambda size: -weights_of(size, columns))


def compared(columns: int, chosen: str) -> list[str]:
    """Up to `MOST` group sizes, the chosen one among them if it fits, the coarsest first."""
    twin = {str(columns): "row", "row": str(columns)}.get(chosen, str(columns))  # the same groups by another name
    known = [size for size in dict.fromkeys((chosen, *PREFERRED)) if size in GROUP_SIZES and size != twin]
    fit = [size for size in known if divides(size, columns)]
    return sorted(fit[:MOST], key=lambda size: -weights_of(size, columns))
