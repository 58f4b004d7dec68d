"""What the tasks of the `lora` experiment share: the base, what is compared for the proof, what is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from lab.experiments.base import RunContext
from lab.experiments.compared import finding
from lab.experiments.compared.finding import Finding
from lab.experiments.compared.fingerprint import fingerprint
from lab.experiments.compared.progress import Made, Part
from lab.experiments.compared.texts import ComparedTexts
from lab.experiments.lora.kept import keep
from lab.experiments.lora.logits import Apart, apart, last_logits
from lab.experiments.lora.merged import Entries, check_entries, merging, nothing_else
from lab.experiments.lora.params import LoraParams
from lab.lora.adapter import Adapter
from lab.lora.attach import Attached
from lab.lora.merge import MergedShell
from lab.models.loading import LoadedModel
from lab.models.shell import make_shell

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.1, torch.float16: 0.02}
"""Of the largest difference of a logit, relative to the largest logit, merged against unmerged. In bf16 each merged
weight is rounded once more (2^-9 of it), and every layer rounds its own results in either way."""
PLACES = 32
"""Of the row, at most, that logits are compared at."""


@dataclass
class Setup:
    """One run's model, parameters and what was found of it."""

    context: RunContext
    params: LoraParams
    findings: list[Finding] = field(default_factory=list)
    cut: float = 0.0
    """|dW - dW'| / |dW| of singular values that were left out."""

    def __post_init__(self) -> None:
        self.loaded: LoadedModel = self.context.model
        self.model: nn.Module = self.loaded.model
        self.kept = keep(self.context)
        self.before = ""
        self.entries = Entries(self.params.seed)
        p = self.params
        self.texts = ComparedTexts(self.loaded, p.text, 32, p.heldout_tokens)

    def begin(self) -> Part:
        """The base's fingerprint before anything is done."""
        self.before = yield from fingerprint(self.model)

    def attached(self, adapter: Adapter, factor: float = 1.0) -> Attached:
        """A shell of the base with one adapter on."""
        attached = Attached(make_shell(self.model), [adapter])
        attached.active, attached.factor = adapter.name, factor
        return attached

    def merged(self, adapter: Adapter, factor: float = 1.0) -> Made[MergedShell]:
        """The adapter merged into a shell of the base, the run's mistake in it, its entries checked."""
        made = yield from merging(self.model, adapter, factor, self.params.break_run, f"merging {adapter.name}")
        yield from check_entries(self.entries, self.model, made.shell, adapter, factor)
        self.findings.append(nothing_else(self.model, made.shell, adapter))
        return made

    def against_unmerged(self, name: str, unmerged: nn.Module, merged: nn.Module, ids: list[int]) -> Made[Apart]:
        """The logits of the two at the last places of a text, for the proof."""
        found = yield from self.apart(unmerged, merged, ids)
        limit = TOLERANCE.get(self.loaded.dtype, TOLERANCE[torch.bfloat16])
        kind = str(self.loaded.dtype).removeprefix("torch.")
        claim = f"{name}: merged and unmerged logits agree within {limit:g} of the largest ({kind})"
        detail = {
            f"{name}_max_logit_difference": found.difference,
            f"{name}_largest_logit": found.scale,
            f"{name}_tolerance": limit,
            f"{name}_places": found.places,
        }
        if found.relative <= limit:
            self.findings.append(Finding(claim, "equal", detail=detail))
        else:
            words = (
                f"{name}: a logit differs by {found.difference:.3g} between merged and unmerged, "
                f"{found.relative:.3g} of the largest."
            )
            self.findings.append(Finding(claim, "different", words, detail))
        return found

    def apart(self, one: nn.Module, other: nn.Module, ids: list[int]) -> Made[Apart]:
        """Two models at the last places of a text."""
        places = min(PLACES, len(ids))
        first = yield from last_logits(one, ids, places)
        second = yield from last_logits(other, ids, places)
        return apart(first, second)

    def proving(self) -> Made[None]:
        """Yield the proof."""
        mistake = self.params.break_run != "nothing"
        yield from finding.proving(
            self.loaded, self.before, self.entries.counted(), _each_once(self.findings), mistake=mistake
        )


def _each_once(findings: list[Finding]) -> list[Finding]:
    """Findings of one claim together: the first that is not equal, with the details of all."""
    found: dict[str, Finding] = {}
    for one in findings:
        before = found.get(one.claim)
        if before is None:
            found[one.claim] = one
        elif before.verdict == "equal":
            found[one.claim] = Finding(one.claim, one.verdict, one.words, {**before.detail, **one.detail})
    return list(found.values())
