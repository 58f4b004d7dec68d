"""How many weights are pruned, and among which they are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.errors import BadInput, shown

Scope = Literal["matrix", "row"]
SCOPES: tuple[Scope, ...] = ("matrix", "row")
N_OF_M = ((2, 4), (4, 8), (1, 4))
"""N:M as hardware and papers have them: of each M consecutive weights along the input, N are kept."""


@dataclass(frozen=True)
class Pattern:
    """What a mask must be like.

    Attributes:
        sparsity: share of the weights that are pruned, 0 to 1; of N:M it follows from n and m.
        scope: weights are compared within the whole matrix or within each row (one output).
        n, m: of each m consecutive weights of a row (along in_features) n are kept; 0 and 0 for no such pattern.

    Raises:
        BadInput: a sparsity outside 0 to 1, an unknown scope, or an N:M that does not exist.
    """

    sparsity: float = 0.5
    scope: Scope = "matrix"
    n: int = 0
    m: int = 0

    def __post_init__(self) -> None:
        if (self.n or self.m) and (self.n, self.m) not in N_OF_M:
            raise BadInput(
                f"There is no pattern {shown(self.n)}:{shown(self.m)}.",
                remedy=f"Choose {', '.join(f'{n}:{m}' for n, m in N_OF_M)}.",
            )
        if self.m:
            object.__setattr__(self, "sparsity", 1 - self.n / self.m)
        if not 0 <= self.sparsity <= 1:
            raise BadInput(
                f"A sparsity of {shown(self.sparsity)} is no share of the weights.", remedy="Give 0 to 1: 0.5 is half."
            )
        if self.scope not in SCOPES:
            raise BadInput(f"There is no scope {shown(self.scope)}.", remedy=f"Choose {' or '.join(SCOPES)}.")

    @property
    def label(self) -> str:
        """For a person: "2:4", "50 %"."""
        return f"{self.n}:{self.m}" if self.m else f"{100 * self.sparsity:g} %"

    def pruned_of(self, weights: int) -> int:
        """How many of so many weights go: Python's `round`, a half to the even number, as in `torch.nn.utils.prune`."""
        return round(self.sparsity * weights)

    def check(self, columns: int) -> None:
        """Refuse a width that the pattern does not divide.

        Raises:
            BadInput: with what fits.
        """
        if self.m and columns % self.m:
            raise BadInput(
                f"{self.n}:{self.m} does not fit rows of {columns} weights: {columns} is no multiple of {self.m}.",
                remedy="Choose a sparsity without an N:M pattern for this matrix.",
            )
