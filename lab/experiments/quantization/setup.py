"""What the tasks of the `quantization` experiment share: the matrices, the texts, what is checked."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lab.events.quantization import GridNote
from lab.experiments.base import RunContext
from lab.experiments.compared.fingerprint import fingerprint
from lab.experiments.compared.progress import Part
from lab.experiments.compared.targets import find_targets
from lab.experiments.compared.texts import ComparedTexts
from lab.experiments.quantization.checked import Checked
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.settings import Scheme
from lab.models.grid import check_grid
from lab.models.loading import LoadedModel

GRID_GROUP = 32


@dataclass
class Setup:
    """One run's model, parameters, texts and checks."""

    context: RunContext
    params: QuantizationParams

    def __post_init__(self) -> None:
        self.loaded: LoadedModel = self.context.model
        self.model: nn.Module = self.loaded.model
        self.targets = find_targets(self.model)
        self.scheme = Scheme.of(self.params)
        self.checked = Checked(self.params.seed, self.loaded.dtype)
        self.before = ""
        p = self.params
        self.texts = ComparedTexts(self.loaded, p.text, p.calibration_tokens, p.heldout_tokens)

    def begin(self) -> Part:
        """The model's fingerprint before anything is done, and what is known of its own grid."""
        self.before = yield from fingerprint(self.model)
        yield self.grid_note()

    def grid_note(self) -> GridNote:
        """Whether the first matrix with rows of whole groups of 32 lies on the grid of Q4_1."""
        grid = self.loaded.facts.grid or ""
        target = next((t for t in self.targets if t.weight.shape[1] % GRID_GROUP == 0), None)
        if target is None:
            return GridNote(grid=grid, checked="", changed=1.0, max_error=float("nan"), words="")
        found = check_grid(target.weight)
        words = ""
        if found.on_grid:
            name = grid or "Q4_1, groups of 32"
            words = (
                f"The weights of {self.loaded.facts.name} come from {name}: 4 bits with a float minimum and groups of "
                "32 change nothing, and errors on other 4-bit grids are not those of ordinary weights."
            )
        return GridNote(grid=grid, checked=target.title, changed=found.changed, max_error=found.max_error, words=words)
