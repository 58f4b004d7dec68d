"""What the tasks of the `quantization` experiment share: the matrices, the texts, what is checked."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lab.events.quantization import GridNote
from lab.experiments.base import RunContext
from lab.experiments.compared.fingerprint import fingerprint
from lab.experiments.compared.progress import Made, Part
from lab.experiments.compared.targets import Target, find_targets
from lab.experiments.compared.texts import ComparedTexts
from lab.experiments.quantization.checked import Checked
from lab.experiments.quantization.params import QuantizationParams
from lab.experiments.quantization.settings import Scheme
from lab.models.grid import GridCheck, check_grid
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
        yield (yield from self.grid_note())

    def grid_note(self) -> Made[GridNote]:
        """Whether matrices lie on the grid of Q4_1: the first of each projection with rows of whole groups of 32.

        Of a merged model some do and some do not: those that were adapted.
        """
        grid = self.loaded.facts.grid or ""
        found: dict[str, tuple[Target, GridCheck]] = {}
        for target in self.targets:
            if target.projection not in found and target.weight.shape[1] % GRID_GROUP == 0:
                found[target.projection] = target, check_grid(target.weight)
                yield None
        if not found:
            return GridNote(grid=grid, checked="", changed=1.0, max_error=float("nan"), words="")
        target, first = next(iter(found.values()))
        on = [name for name, (_, check) in found.items() if check.on_grid]
        off = [name for name in found if name not in on]
        words = ""
        if on:
            which = f"The weights of {', '.join(on)} in" if off else "The weights of"
            rest = f" Those of {', '.join(off)} lie on no such grid." if off else ""
            words = (
                f"{which} {self.loaded.facts.name} come from {grid or 'Q4_1, groups of 32'}: 4 bits with a float "
                f"minimum and groups of 32 change nothing, and errors on other 4-bit grids are not those of ordinary "
                f"weights.{rest}"
            )
        return GridNote(grid=grid, checked=target.title, changed=first.changed, max_error=first.max_error, words=words)
