"""The verdict on a speculative run: its tokens beside plain decoding, or its distributions beside the model's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from lab.decoding.speculative.bars import LEAST, Bars
from lab.decoding.speculative.observed import IDENTITY, ROUNDING, Fault, RuleCheck
from lab.events import Proof

TIE_FP32 = 1e-4
"""Two logits nearer than this can fall either way in fp32, depending on the order of the sums."""

BFLOAT16_EPS = 2.0**-7

LOG_P = {"float32": 1e-3, "bfloat16": 0.5}
"""How far log p of two computations may be apart: rounding of all layers."""

Verdict = Literal["equal", "tie", "different", "unproven"]

GREEDY = "identical to plain greedy decoding and to generate()"
GREEDY_PLAIN = "identical to plain greedy decoding"
DRAWN = "drawn from exactly the model's distribution"


@dataclass(frozen=True)
class TopTwo:
    """The plain model's two best tokens at a position, after processors, with their logits."""

    tokens: tuple[int, int]
    logits: tuple[float, float]

    @classmethod
    def of(cls, logits: Tensor) -> TopTwo:
        """Of (vocab,) logits."""
        values, ids = logits.float().topk(2)
        (a, b), (i, j) = values.tolist(), ids.tolist()
        return cls((int(i), int(j)), (float(a), float(b)))

    @property
    def gap(self) -> float:
        """How far apart they are."""
        return self.logits[0] - self.logits[1]

    def limit(self, dtype: str) -> float:
        """How near they must be for either to be right: 1e-4 in fp32, two units in the last place in bf16."""
        if dtype == "float32":
            return TIE_FP32
        return 2 * BFLOAT16_EPS * max(abs(self.logits[0]), abs(self.logits[1]), 1.0)


def matching(one: Sequence[int], other: Sequence[int]) -> int:
    """How many items are equal before the first difference."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


@dataclass(frozen=True)
class GreedyEvidence:
    """A greedy run and what it is compared with.

    Attributes:
        others: plain decoding and `generate()`, by name; at least one.
        top_two: the plain model's at the first difference; None where all are equal.
        left_in_cache: positions that should have been cropped and were seen in the cache, and at which round first.
    """

    token_ids: Sequence[int]
    others: dict[str, Sequence[int]]
    top_two: TopTwo | None
    dtype: str
    name_of: Callable[[int], str]
    left_in_cache: tuple[int, int] | None = None
    mistake: str = "nothing"
    detail: dict[str, Any] = field(default_factory=dict)

    def first_difference(self) -> tuple[str, int] | None:
        """With whom and at which new token the run parts first."""
        parted = [
            (matching(self.token_ids, ids), name) for name, ids in self.others.items() if list(ids) != [*self.token_ids]
        ]
        if not parted:
            return None
        at, name = min(parted)
        return name, at


def prove_greedy(evidence: GreedyEvidence) -> Proof:
    """Compare token by token."""
    ours, parted = evidence.token_ids, evidence.first_difference()
    claim = f"identical to {' and to '.join(evidence.others)}"
    compared = max(len(ours), *(len(ids) for ids in evidence.others.values()))
    verdict: Verdict = "equal"
    words = ""
    matched = compared
    detail = {"tokens": len(ours), "dtype": evidence.dtype, **evidence.detail}
    if parted is not None:
        name, matched = parted
        verdict, words = _parted(evidence, name, matched)
        detail["first_difference"] = _where(evidence, name, matched)
    if evidence.left_in_cache is not None:
        words = f"{words} {_left(evidence.left_in_cache)}".strip()
        verdict = "different"
        if parted is None:
            words = f"All {len(ours)} tokens are the same, but the run is not. {words}"
    elif parted is None and evidence.mistake != "nothing":
        verdict, words = "unproven", "The mistake had no occasion in this run: ask for more tokens."
    return Proof(verdict=verdict, claim=claim, compared=compared, matched=matched, explanation=words, detail=detail)


def _parted(evidence: GreedyEvidence, name: str, at: int) -> tuple[Verdict, str]:
    ours, theirs = evidence.token_ids, evidence.others[name]
    if at >= len(ours) or at >= len(theirs):
        longer = name if at >= len(ours) else "this run"
        return "different", f"After {at} equal tokens {longer} went on and the other had ended."
    words = f"At new token {at + 1} this run has {evidence.name_of(ours[at])} and {name} {evidence.name_of(theirs[at])}"
    top = evidence.top_two
    if top is None:
        return "different", f"{words}."
    limit = top.limit(evidence.dtype)
    words = f"{words}; the model's two best logits there are {top.gap:.3g} apart"
    if top.gap < limit and {ours[at], theirs[at]} == set(top.tokens):
        why = "checking several tokens in one pass adds in another order than one at a time"
        return "tie", f"{words}: a near tie, below {limit:.1g}, where either is right in {evidence.dtype}: {why}."
    return "different", f"{words}: too far for a near tie, which is below {limit:.1g}."


def _where(evidence: GreedyEvidence, name: str, at: int) -> dict[str, Any]:
    ours, theirs, top = evidence.token_ids, evidence.others[name], evidence.top_two
    return {
        "index": at,
        "with": name,
        "token_id": ours[at] if at < len(ours) else None,
        "reference_token_id": theirs[at] if at < len(theirs) else None,
        "gap": top.gap if top is not None else None,
        "tolerance": top.limit(evidence.dtype) if top is not None else None,
    }


def _left(left: tuple[int, int]) -> str:
    count, index = left
    return f"After round {index + 1} the cache held {count} positions too many: rejected tokens were left in it."


@dataclass
class TaughtCheck:
    """Every p that was used beside that of the plain model on the finished text.

    Attributes:
        worst: the largest |difference of log p| among tokens of probability 0.001 and more.
        at: the new token where it was.
        beyond: new tokens where it passes the tolerance.
    """

    dtype: str
    compared: int = 0
    worst: float = 0.0
    at: int = -1
    beyond: list[int] = field(default_factory=list)

    def take(self, index: int, used: Bars, p: Tensor) -> None:
        """One new token: what it was drawn from, and the plain model's (vocab,) p."""
        worth = [(token, share) for token, share in zip(used.token_ids, used.p, strict=True) if share > LEAST]
        # Their largest, too: a token that the run gave nothing would not be among ours.
        ids = [token for token, _ in worth]
        theirs = p[[*ids, int(p.argmax())]].tolist()
        worst = max((_apart(share, other) for (_, share), other in zip(worth, theirs, strict=False)), default=0.0)
        if theirs[-1] > 2 * LEAST and int(p.argmax()) not in ids:
            worst = max(worst, _apart(LEAST, theirs[-1]))
        self.compared += 1
        if worst > self.worst:
            self.worst, self.at = worst, index
        if worst > LOG_P[self.dtype]:
            self.beyond.append(index)


def _apart(one: float, other: float) -> float:
    if one <= 0.0 or other <= 0.0:
        return math.inf
    return abs(math.log(one) - math.log(other))


@dataclass(frozen=True)
class DrawnEvidence:
    """A sampled run: what was seen of its rule, of its probabilities, and of a second run with the same numbers.

    Attributes:
        replayed: the tokens of the second run; None if there was none.
    """

    token_ids: Sequence[int]
    rule: RuleCheck
    taught: TaughtCheck | None
    replayed: Sequence[int] | None
    dtype: str
    name_of: Callable[[int], str]
    left_in_cache: tuple[int, int] | None = None
    mistake: str = "nothing"
    detail: dict[str, Any] = field(default_factory=dict)


def prove_drawn(evidence: DrawnEvidence) -> Proof:
    """Sequences of two drawn runs cannot be compared, so the distributions are."""
    rule, taught = evidence.rule, evidence.taught
    reasons: list[str] = []
    wrong = {fault.position for fault in rule.faults}
    if rule.faults:
        reasons.append(_rule_words(rule.faults))
    if evidence.left_in_cache is not None:
        reasons.append(_left(evidence.left_in_cache))
    # Rounding carries tokens over the borders of top-k and top-p, so in bf16 this alone is no evidence.
    rounded = ""
    if taught is not None and taught.beyond:
        wrong.update(taught.beyond)
        if evidence.dtype == "float32":
            reasons.append(_taught_words(taught, evidence.dtype))
        else:
            rounded = f"{_taught_words(taught, evidence.dtype)} Run it in float32 for a proof."
    replay_at = None
    if evidence.replayed is not None and list(evidence.replayed) != list(evidence.token_ids):
        replay_at = matching(evidence.replayed, evidence.token_ids)
        reasons.append(f"A second run with the same random numbers parted at new token {replay_at + 1}.")
        wrong.add(replay_at)
    compared = max(rule.positions, taught.compared if taught is not None else 0)
    verdict: Verdict = "different" if reasons else "equal"
    if not reasons and evidence.mistake != "nothing":
        verdict = "unproven"
        reasons.append(
            "The mistake was made, but at no position of this run did it change what was drawn. Ask for more tokens."
            if rule.rejections
            else "Nothing was rejected in this run, so the mistake was never made. Ask for more tokens."
        )
    elif not reasons and rounded:
        verdict = "unproven"
        reasons.append(rounded)
    return Proof(
        verdict=verdict,
        claim=DRAWN,
        compared=compared,
        matched=max(0, compared - len(wrong)),
        unit="positions",
        explanation=" ".join(reasons),
        detail={
            "tokens": len(evidence.token_ids),
            "dtype": evidence.dtype,
            "rejections": rule.rejections,
            "identity_largest_difference": rule.identity,
            "identity_tolerance": IDENTITY,
            "acceptance_largest_difference": rule.acceptance,
            "replacement_largest_variation": rule.replacement,
            "rounding_tolerance": ROUNDING,
            "log_p_largest_difference": taught.worst if taught is not None else None,
            "log_p_tolerance": LOG_P[evidence.dtype],
            "replay_equal": None if evidence.replayed is None else replay_at is None,
            **evidence.detail,
        },
    )


def _rule_words(faults: Sequence[Fault]) -> str:
    first = faults[0]
    places = len({fault.position for fault in faults})
    more = f" The same kind of thing was seen at {places} positions." if places > 1 else ""
    return f"At new token {first.position + 1} {first.words}.{more}"


def _taught_words(taught: TaughtCheck, dtype: str) -> str:
    return (
        f"At {len(taught.beyond)} of {taught.compared} tokens the probabilities that were used are not those of the "
        f"plain model on this text: at new token {taught.at + 1} log p differs by {taught.worst:.3g}, and rounding in "
        f"{dtype} explains {LOG_P[dtype]:g}."
    )
