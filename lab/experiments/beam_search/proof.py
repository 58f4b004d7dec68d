"""The verdict on a search: its hypotheses and their scores beside those of `generate(num_beams=...)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.decoding.beam.hypotheses import Finished
from lab.decoding.beam.search import SearchStep
from lab.events import Proof
from lab.experiments.beam_search.observed import NameText
from lab.experiments.reference_beams import ReferenceBeams
from lab.kv_cache.observed import Finding

SCORE_FP32 = 1e-5
"""How near two scores must be, relative to their size where that is above 1."""

TIE_FP32 = 1e-4
"""How near two candidates' scores must be for either to be right."""

SCORE_BF16 = 2.0**-5
TIE_BF16 = 2.0**-3

NOWHERE = -1e8
"""transformers' score of a hypothesis that does not exist is -1e9 or a large part of it."""

Verdict = Literal["equal", "tie", "different", "unproven"]


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """What one step decided and how close it was.

    Attributes:
        kept: the newest token of each running beam after the step, best first.
        gap: the least difference of the scores of two candidates next to each other by rank, down to the first one
            that was not kept.
        margin: of the stopping rule: how far the best possible score was from the worst on the shelf.
    """

    kept: tuple[int, ...]
    gap: float
    margin: float


def decisions(step: SearchStep) -> Decisions:
    """From a step to what it decided."""
    ranked = step.candidates
    kept = sorted((c for c in ranked if c.becomes >= 0), key=lambda c: c.becomes)
    last = min(max((c.rank for c in ranked if c.fate != "pruned"), default=0) + 1, len(ranked) - 1)
    gaps = [ranked[i].score - ranked[i + 1].score for i in range(last)]
    margin = math.inf
    if step.shelf and not math.isnan(step.best_possible):
        margin = abs(step.best_possible - step.shelf[-1].score)
    return Decisions(kept=tuple(c.token_id for c in kept), gap=min(gaps, default=math.inf), margin=margin)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the search found and what it is compared with.

    Attributes:
        hypotheses: best first; `sequences` their tokens.
        decided: each step's decisions.
        found: what in the run should not have been.
        idle_mistake: why a mistake made on purpose had no occasion; "" otherwise.
        name: shows a text to a person.
    """

    width: int
    hypotheses: Sequence[Finished]
    sequences: Sequence[tuple[int, ...]]
    decided: Sequence[Decisions]
    reference: ReferenceBeams
    found: Sequence[Finding]
    dtype: str
    name: NameText
    idle_mistake: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def claim(width: int) -> str:
    """What is to be shown."""
    return f"the same hypotheses and scores as generate(num_beams={width})"


def judge(evidence: Evidence) -> Proof:
    """Compare all hypotheses: the same sequences in the same order, scores within 1e-5 (of their size, where that is
    above 1) in fp32. A difference in fp32 is allowed only where two candidates, or a bound and a hypothesis, were
    nearer than 1e-4. A run in which something should not have been is never called equal.
    """
    theirs = [
        (tokens, score)
        for tokens, score in zip(evidence.reference.sequences, evidence.reference.scores, strict=True)
        if score > NOWHERE
    ]
    ours = list(zip(evidence.sequences, [h.score for h in evidence.hypotheses], strict=True))
    matched = _matching(evidence, ours, theirs)
    same = matched == len(ours) == len(theirs)
    verdict: Verdict = "equal"
    words = ""
    near: dict[str, Any] = {}
    if not same:
        verdict, words, near = _parted(evidence, matched, ours, theirs)
    if evidence.found:
        verdict = "different"
        if same:
            words = "The hypotheses are the same, but the search is not: it did not keep or count what it should."
    elif same and evidence.idle_mistake:
        verdict, words = "unproven", evidence.idle_mistake
    seen = "; ".join(f.words for f in evidence.found)
    explanation = " ".join(part for part in (words, f"What was seen: {seen}." if seen else "") if part)
    together = zip(ours[:matched], theirs[:matched], strict=True)
    return Proof(
        verdict=verdict,
        claim=claim(evidence.width),
        compared=max(len(ours), len(theirs)),
        matched=matched,
        explanation=explanation,
        unit="hypotheses",
        detail={
            "reference": "transformers generate()",
            "largest_score_difference": max((abs(a[1] - b[1]) for a, b in together), default=None),
            "smallest_gap": min((d.gap for d in evidence.decided), default=None),
            "prefill_chunk_of_generate": evidence.reference.prefill_chunk,
            "note": evidence.idle_mistake,
            "findings": [{"kind": f.kind, "index": f.index, "words": f.words} for f in evidence.found],
            **near,
            **evidence.more,
        },
    )


def _matching(
    evidence: Evidence, ours: list[tuple[tuple[int, ...], float]], theirs: list[tuple[tuple[int, ...], float]]
) -> int:
    limit = SCORE_FP32 if evidence.dtype == "float32" else SCORE_BF16
    for index, ((a, x), (b, y)) in enumerate(zip(ours, theirs, strict=False)):
        if tuple(a) != tuple(b) or abs(x - y) > limit * max(1.0, abs(y)):
            return index
    return min(len(ours), len(theirs))


def _parted(
    evidence: Evidence,
    at: int,
    ours: list[tuple[tuple[int, ...], float]],
    theirs: list[tuple[tuple[int, ...], float]],
) -> tuple[Verdict, str, dict[str, Any]]:
    where, gap = _nearest_call(evidence, at, ours, theirs)
    limit = TIE_FP32 if evidence.dtype == "float32" else TIE_BF16
    words = _difference_words(evidence, at, ours, theirs)
    near = {"first_difference": {"hypothesis": at, "where": where, "gap": gap, "tolerance": limit}}
    if gap < limit:
        return "tie", f"{words} {where} two scores are {gap:.2g} apart: below {limit:.1g} either is right.", near
    if evidence.dtype != "float32" and not evidence.found:
        return (
            "unproven",
            f"{words} In {evidence.dtype} the scores of two computations differ in their third digit, and a search "
            "compares many. Run it in float32 for a proof.",
            near,
        )
    if math.isinf(gap):
        return "different", words, near
    return "different", f"{words} {where} the nearest scores are {gap:.3g} apart, too far for a tie.", near


def _nearest_call(
    evidence: Evidence,
    at: int,
    ours: list[tuple[tuple[int, ...], float]],
    theirs: list[tuple[tuple[int, ...], float]],
) -> tuple[str, float]:
    """Where the two searches first decided differently, in words, and how close our call was there."""
    fed, decided = evidence.reference.fed, evidence.decided
    for index, (kept, step) in enumerate(zip(fed, decided, strict=False)):
        if kept != step.kept:
            return f"They part at step {index + 1}, where", step.gap
    # The last step's beams are never fed, so a search of n steps has n - 1 passes.
    steps = min(len(fed) + 1, len(decided))
    if len(fed) + 1 != len(decided) and steps:
        return f"One of them stopped after step {steps}, where", decided[steps - 1].margin
    if at < len(ours) and at < len(theirs) and ours[at][0] != theirs[at][0]:
        return "All steps are the same; of the two hypotheses", abs(ours[at][1] - theirs[at][1])
    return "All steps are the same;", math.inf


def _difference_words(
    evidence: Evidence,
    at: int,
    ours: list[tuple[tuple[int, ...], float]],
    theirs: list[tuple[tuple[int, ...], float]],
) -> str:
    if at >= len(ours) or at >= len(theirs):
        more = "generate()" if at >= len(ours) else "this run"
        return f"After {at} equal hypotheses {more} has more."
    (a, x), (b, y) = ours[at], theirs[at]
    if tuple(a) == tuple(b):
        return f"Hypothesis {at + 1} is {evidence.name(a)} in both, but scores {x:.6g} here and {y:.6g} in generate()."
    return f"Hypothesis {at + 1} is {evidence.name(a)} here ({x:.4g}) and {evidence.name(b)} in generate() ({y:.4g})."
