"""What the tasks of the `pruning` experiment share: the matrices, the texts, what is checked."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lab.experiments.base import RunContext
from lab.experiments.compared import finding
from lab.experiments.compared.finding import Counted, Finding
from lab.experiments.compared.fingerprint import fingerprint
from lab.experiments.compared.progress import Made, Part
from lab.experiments.compared.targets import find_targets
from lab.experiments.compared.texts import ComparedTexts
from lab.experiments.pruning.checked import Checked
from lab.experiments.pruning.params import PruningParams
from lab.experiments.pruning.settings import Scheme
from lab.models.loading import LoadedModel

MASKS = (
    "masks counted again in plain Python on sampled rows, their choice computed again from the definition where there "
    "is one, pruned weights 0 and kept ones the method's values in what runs"
)


@dataclass
class Setup:
    """One run's model, parameters, texts and checks."""

    context: RunContext
    params: PruningParams

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
        """The model's fingerprint before anything is done."""
        self.before = yield from fingerprint(self.model)

    def proving(self, *others: Finding) -> Made[None]:
        """Yield the proof."""
        checked = self.checked
        counted = Counted(
            claim=MASKS,
            compared=checked.rows,
            matched=checked.right,
            unit="rows of weights",
            words=checked.words,
            detail={
                "rows": checked.rows,
                "matrices": checked.matrices,
                "methods": sorted(checked.methods),
                "dtype": str(checked.dtype).removeprefix("torch."),
            },
        )
        mistake = self.params.break_run != "nothing"
        yield from finding.proving(self.loaded, self.before, counted, others, mistake=mistake)
