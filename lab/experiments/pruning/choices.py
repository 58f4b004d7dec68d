"""What can be chosen in the `pruning` experiment, with the words for it. No torch here."""

from __future__ import annotations

from typing import Literal

Task = Literal["masks", "curve", "words", "savings", "recover"]
TASKS: dict[Task, str] = {
    "masks": "study masks",
    "curve": "loss against sparsity",
    "words": "compare words",
    "savings": "what it saves",
    "recover": "recover by fine-tuning",
}
MethodName = Literal["random", "magnitude", "global_magnitude", "wanda", "sparsegpt", "rows"]
METHODS: dict[MethodName, str] = {
    "random": "at random",
    "magnitude": "magnitude",
    "global_magnitude": "magnitude, all layers together",
    "wanda": "Wanda",
    "sparsegpt": "SparseGPT",
    "rows": "heads and channels",
}
ONE_MATRIX: tuple[MethodName, ...] = ("random", "magnitude", "wanda", "sparsegpt")
"""Methods that can prune a single matrix by a mask."""
CALIBRATED: tuple[MethodName, ...] = ("wanda", "sparsegpt", "rows")

PatternName = Literal["none", "2:4", "4:8", "1:4"]
PATTERNS: dict[PatternName, str] = {"none": "any", "2:4": "2:4", "4:8": "4:8", "1:4": "1:4"}
ScopeName = Literal["matrix", "row"]
SCOPES: dict[ScopeName, str] = {"matrix": "the whole matrix", "row": "each row"}
Compared = Literal["magnitude_wanda", "all"]

BreakRun = Literal["nothing", "revived", "wrong_axis", "one_too_many", "mask_of_neighbour"]
MISTAKES: dict[BreakRun, str] = {
    "nothing": "nothing",
    "revived": "a pruned weight comes back",
    "wrong_axis": "N:M along the wrong axis",
    "one_too_many": "one weight too many goes",
    "mask_of_neighbour": "the mask of the next row",
}
