"""Several tokens in one pass: a chain, or a tree whose branches are alternatives.

A row is one token in the pass. Its parent is the row before it on its path; -1 is the cache alone. A row attends
to what the cache held before, to its ancestors and to itself, and stands at position start + depth. So each path
from a root to a leaf computes what it would as plain text (SpecInfer, Miao et al. 2024; Medusa, Cai et al. 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tree:
    """The shape of one pass.

    Attributes:
        parents: for each row, the index of its parent row, below its own; -1 for a child of the cache's last token.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        for row, parent in enumerate(self.parents):
            if not -1 <= parent < row:
                raise ValueError(f"row {row} has the parent {parent}; it must be an earlier row, or -1")

    @classmethod
    def chain(cls, rows: int) -> Tree:
        """Each row follows the one before it."""
        return cls(tuple(range(-1, rows - 1)))

    @property
    def is_chain(self) -> bool:
        """Whether it has one path."""
        return all(parent == row - 1 for row, parent in enumerate(self.parents))

    def depths(self) -> tuple[int, ...]:
        """For each row, how many ancestors it has among the rows."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    def path(self, row: int) -> tuple[int, ...]:
        """The rows from the root to `row`, both included."""
        path = [row]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return tuple(reversed(path))

    def children(self, row: int) -> tuple[int, ...]:
        """The rows whose parent is `row` (-1: the roots), in order."""
        return tuple(i for i, parent in enumerate(self.parents) if parent == row)

    def visible(self, cached: int, device: torch.device) -> Tensor:
        """(row, cached + row) bool: what each row attends to."""
        rows = len(self.parents)
        mask = torch.zeros(rows, cached + rows, dtype=torch.bool)
        mask[:, :cached] = True
        for row in range(rows):
            mask[row, [cached + i for i in self.path(row)]] = True
        return mask.to(device)


def row_positions(tree: Tree, start: int) -> Sequence[int]:
    """For each row, its position in the text."""
    return [start + depth for depth in tree.depths()]
