"""The verdict on a run: its weights computed again, its model untouched, its words those of `generate()`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lab.events import Proof
from lab.experiments.quantization.checked import fingerprint, ties
from lab.experiments.quantization.setup import Made, Setup

Verdict = Literal["equal", "tie", "different", "unproven"]

WEIGHTS = "the weights that run are the values of their codes, computed again in plain Python"
UNTOUCHED = "the shared model is untouched"


@dataclass
class Finding:
    """Something else that was compared.

    Attributes:
        claim: what was to be shown.
        verdict: of it alone.
        words: "" where it is equal.
    """

    claim: str
    verdict: Verdict
    words: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


def proving(setup: Setup, others: tuple[Finding, ...] = ()) -> Made[None]:
    """Fingerprint the shared model once more, and yield the proof."""
    tied = ties(setup.model)
    after = yield from fingerprint(setup.model)
    yield verdict(setup, after, tied, others)


def verdict(setup: Setup, after: str, tied: bool | None, others: tuple[Finding, ...]) -> Proof:
    """All findings together."""
    checked = setup.checked
    verdicts: list[Verdict] = [other.verdict for other in others]
    words = [checked.words] if checked.words else []
    claims = [WEIGHTS] if checked.groups else []
    claims += [other.claim for other in others] + [UNTOUCHED]
    if checked.words:
        verdicts.append("different")
    if setup.before != after:
        verdicts.append("different")
        words.append("The shared model's weights are not those that the run began with.")
    if setup.loaded.facts.tied and tied is False:
        verdicts.append("different")
        words.append("The head and the embedding of the shared model are no longer one tensor.")
    words += [other.words for other in others if other.words]
    mistake = setup.params.break_run
    overall: Verdict = "equal"
    for worst in ("different", "unproven", "tie"):
        if worst in verdicts:
            overall = worst
            break
    if mistake != "nothing" and overall != "different":
        overall = "unproven"
        words.append("The mistake was made, but it changed nothing that was compared.")
    detail: dict[str, Any] = {
        "groups": checked.groups,
        "matrices": checked.matrices,
        "dtype": str(setup.loaded.dtype).removeprefix("torch."),
        "rounding": checked.rounding,
        "model_sha256_before": setup.before,
        "model_sha256_after": after,
        "tied": tied,
    }
    for other in others:
        detail.update(other.detail)
    return Proof(
        verdict=overall,
        claim="; ".join(claims),
        compared=checked.groups,
        matched=checked.right,
        unit="groups of weights" if "group" in checked.seen or not checked.seen else "weights",
        explanation=" ".join(words),
        detail=detail,
    )
