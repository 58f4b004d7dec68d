"""The verdict on a decoding run: its tokens beside those of `generate()` and of the run without a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.events import Proof
from lab.experiments.reference import ReferenceTokens
from lab.kv_cache.observed import Finding

TOLERANCE_FP32 = 1e-4
BFLOAT16_EPS = 2.0**-7

Verdict = Literal["equal", "tie", "different", "unproven"]

NameToken = Callable[[int], str]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the run did and what it is compared with.

    Attributes:
        token_ids: the run's new tokens.
        gaps: for each of them, the difference of the run's own two largest logits.
        uncached_ids: tokens of the run without a cache, as many as were made; empty if it did not run.
        reference: what `generate()` made.
        found: what in the run should not have been.
        dtype: "float32" or "bfloat16".
        name_token: shows a token to a person.
        more: further figures for the proof's detail.
    """

    token_ids: Sequence[int]
    gaps: Sequence[float]
    uncached_ids: Sequence[int]
    reference: ReferenceTokens
    found: Sequence[Finding]
    dtype: str
    do_sample: bool
    name_token: NameToken
    more: dict[str, Any] = field(default_factory=dict)


def claim(uncached: bool) -> str:
    """What is to be shown."""
    return "identical to generate()" + (" and to the run without the cache" if uncached else "")


def judge(evidence: Evidence) -> Proof:
    """Compare token by token. Equality in fp32 allows a difference only where the reference's two largest
    logits are nearer than 1e-4; in bf16 where they are nearer than two units in the last place. A run in which
    something should not have been is never called equal, whatever its tokens.
    """
    ours, theirs = list(evidence.token_ids), list(evidence.reference.token_ids)
    matched = matching(ours, theirs)
    same = ours == theirs
    verdict: Verdict = "equal"
    words = ""
    if not same:
        verdict, words = _parted(evidence, matched)
    twin = list(evidence.uncached_ids)
    twin_matched = matching(twin, ours)
    twin_words = ""
    if twin_matched < len(twin):
        twin_tie = same and not evidence.do_sample and _tie_at(evidence, twin_matched)
        twin_words = _twin_words(evidence, twin_matched, tie=twin_tie)
        if same:
            verdict = "tie" if twin_tie else "different"
    if evidence.found:
        verdict = "different"
        if same:
            words = f"All {len(ours)} tokens are the same, but the run is not: it did not feed or keep what it should."
    seen = "; ".join(f.words for f in evidence.found)
    explanation = " ".join(
        part for part in (words, twin_words, f"What was seen: {seen}." if seen else _nothing_seen(verdict)) if part
    )
    return Proof(
        verdict=verdict,
        claim=claim(bool(twin)),
        compared=max(len(ours), len(theirs)),
        matched=matched,
        explanation=explanation,
        detail=_detail(evidence, matched, same, twin_matched),
    )


def matching(one: Sequence[int], other: Sequence[int]) -> int:
    """How many items are equal before the first difference."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def tolerance(evidence: Evidence, index: int) -> float:
    """How near the reference's two largest logits must be for either to be right."""
    if evidence.dtype == "float32":
        return TOLERANCE_FP32
    return 2 * BFLOAT16_EPS * max(evidence.reference.largest[index], 1.0)


def _tie_at(evidence: Evidence, index: int) -> bool:
    gaps = evidence.reference.gaps
    return index < len(gaps) and gaps[index] < tolerance(evidence, index)


def _parted(evidence: Evidence, at: int) -> tuple[Verdict, str]:
    ours, theirs = evidence.token_ids, evidence.reference.token_ids
    name = evidence.name_token
    if at >= len(ours) or at >= len(theirs):
        longer = "generate()" if at >= len(ours) else "this run"
        return "different", f"After {at} equal tokens {longer} went on and the other had ended."
    gap = evidence.reference.gaps[at]
    words = (
        f"At new token {at + 1} this run has {name(ours[at])} and generate() {name(theirs[at])}, whose two largest "
        f"logits there are {gap:.3g} apart"
    )
    if not evidence.do_sample:
        limit = tolerance(evidence, at)
        if gap < limit and ours[at] == evidence.reference.runners_up[at]:
            return "tie", f"{words}: nearer than {limit:.1g}, so either is right in {evidence.dtype}."
        return "different", f"{words}: too far for a tie, which is below {limit:.1g}."
    if evidence.dtype != "float32" and not evidence.found:
        return (
            "unproven",
            f"{words}. The tokens are drawn, and in {evidence.dtype} the probabilities of two computations differ in "
            "their third digit, so a draw near a border can fall on either side. Run greedy or in float32 for a proof.",
        )
    return "different", words + "."


def _twin_words(evidence: Evidence, at: int, *, tie: bool) -> str:
    name = evidence.name_token
    if at >= len(evidence.token_ids):
        return f"The run without the cache went on after {at} equal tokens where the one with it had ended."
    words = (
        f"The run without the cache has {name(evidence.uncached_ids[at])} at new token {at + 1}, the one with it "
        f"{name(evidence.token_ids[at])}"
    )
    return f"{words}: a tie, either is right in {evidence.dtype}." if tie else f"{words}."


def _nothing_seen(verdict: Verdict) -> str:
    if verdict != "different":
        return ""
    return (
        "Tokens fed, their positions and the lengths of the cache were all as they should be, so the difference is in "
        "the arithmetic."
    )


def _detail(evidence: Evidence, matched: int, same: bool, twin_matched: int) -> dict[str, Any]:
    reference = evidence.reference
    together = list(zip(evidence.gaps[:matched], reference.gaps[:matched], strict=False))
    detail: dict[str, Any] = {
        "reference": "transformers generate()",
        "tokens": len(evidence.token_ids),
        "reference_tokens": len(reference.token_ids),
        "smallest_gap": min(reference.gaps[:matched], default=None),
        "largest_gap_difference": max((abs(a - b) for a, b in together), default=None),
        "prefill_chunk_of_generate": reference.prefill_chunk,
        "uncached_compared": len(evidence.uncached_ids),
        "uncached_matched": twin_matched,
        "findings": [{"kind": f.kind, "index": f.index, "words": f.words} for f in evidence.found],
        **evidence.more,
    }
    if not same:
        detail["first_difference"] = _difference(evidence, matched)
    return detail


def _difference(evidence: Evidence, at: int) -> dict[str, Any]:
    ours, theirs = evidence.token_ids, evidence.reference.token_ids
    both = at < len(ours) and at < len(theirs)
    return {
        "index": at,
        "token_id": ours[at] if at < len(ours) else None,
        "text": evidence.name_token(ours[at]) if at < len(ours) else None,
        "reference_token_id": theirs[at] if at < len(theirs) else None,
        "reference_text": evidence.name_token(theirs[at]) if at < len(theirs) else None,
        "gap": evidence.reference.gaps[at] if both else None,
        "tolerance": tolerance(evidence, at) if both and not evidence.do_sample else None,
    }
