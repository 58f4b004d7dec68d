"""A whole model pruned one way, as the tasks pass it on."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from lab.experiments.pruning.settings import Scheme
from lab.pruning.rows import Rows
from lab.pruning.rows_model import SmallerModel
from lab.pruning.whole_model import ModuleResult


@dataclass
class Whole:
    """A pruned model.

    Attributes:
        shell: runs as the pruned model would; all else is shared with the dense model.
        modules: what became of each matrix, by name; none where rows were removed.
        smaller: the smaller dense model, where rows were removed.
        rows: what was removed of each layer, where rows were removed.
        ms: of the method's own slices.
    """

    shell: nn.Module
    scheme: Scheme
    modules: dict[str, ModuleResult] = field(default_factory=dict)
    smaller: SmallerModel | None = None
    rows: Rows | None = None
    ms: float = 0.0

    @property
    def sparsity(self) -> float:
        """Of the pruned matrices, counted."""
        if self.smaller is not None:
            return 1 - self.smaller.multiplied / self.smaller.multiplied_before
        weights = sum(one.weights for one in self.modules.values())
        return 1 - sum(one.kept for one in self.modules.values()) / weights if weights else 0.0

    def masks(self) -> dict[str, Tensor]:
        """(out, in) bool by name."""
        return {name: mask for name, one in self.modules.items() if (mask := one.mask) is not None}
