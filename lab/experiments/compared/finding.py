"""The verdict on a run: what it counted, what else was compared, and its model untouched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.events import Proof
from lab.experiments.compared.fingerprint import fingerprint, ties
from lab.experiments.compared.progress import Made
from lab.models.loading import LoadedModel

Verdict = Literal["equal", "tie", "different", "unproven"]
_WORST_FIRST: tuple[Verdict, ...] = ("different", "unproven", "tie", "equal")

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


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What the experiment itself compared, one by one.

    Attributes:
        claim: what that shows; told only where something was compared.
        compared, matched, unit: how many, how many of them were as they should be, and of what.
        words: of the first that was not; "" if there is none.
        detail: goes into the proof, before the rest.
    """

    claim: str
    compared: int
    matched: int
    unit: str
    words: str = ""
    detail: dict[str, Any] = field(default_factory=dict)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst of them; "equal" for none."""
    return next((one for one in _WORST_FIRST if one in verdicts), "equal")


def proving(
    loaded: LoadedModel, before: str, counted: Counted, others: Sequence[Finding] = (), *, mistake: bool = False
) -> Made[None]:
    """Fingerprint the shared model once more, and yield the proof.

    Args:
        loaded: the shared model.
        before: its fingerprint before the run did anything.
        mistake: a mistake was made on purpose.
    """
    tied = ties(loaded.model)
    after = yield from fingerprint(loaded.model)
    yield verdict(loaded, before, after, tied, counted, others, mistake=mistake)


def verdict(
    loaded: LoadedModel,
    before: str,
    after: str,
    tied: bool | None,
    counted: Counted,
    others: Sequence[Finding] = (),
    *,
    mistake: bool = False,
) -> Proof:
    """All findings together: the worst of them counts.

    A run with a mistake in it is never called equal: a mistake that nothing showed leaves it unproven.

    Args:
        before, after: fingerprints of the shared model.
        tied: whether its head and its embedding are one tensor, see `ties`.
    """
    verdicts: list[Verdict] = [other.verdict for other in others]
    words = [counted.words] if counted.words else []
    claims = [counted.claim] if counted.compared else []
    claims += [other.claim for other in others] + [UNTOUCHED]
    if counted.words:
        verdicts.append("different")
    if before != after:
        verdicts.append("different")
        words.append("The shared model's weights are not those that the run began with.")
    if loaded.facts.tied and tied is False:
        verdicts.append("different")
        words.append("The head and the embedding of the shared model are no longer one tensor.")
    words += [other.words for other in others if other.words]
    overall = worst(verdicts)
    if mistake and overall != "different":
        overall = "unproven"
        words.append("The mistake was made, but it changed nothing that was compared.")
    detail = {**counted.detail, "model_sha256_before": before, "model_sha256_after": after, "tied": tied}
    for other in others:
        detail.update(other.detail)
    return Proof(
        verdict=overall,
        claim="; ".join(claims),
        compared=counted.compared,
        matched=counted.matched,
        unit=counted.unit,
        explanation=" ".join(words),
        detail=detail,
    )
