"""Events of the `speculative` experiment.

p is the target's distribution, q the draft's, both after processors, temperature, top-k and top-p: exactly what tokens
are drawn from. A round is one target pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import Literal

from lab.events.base import Event

Kind = Literal["accepted", "rejected", "resampled", "bonus", "unjudged", "plain"]


@dataclass(frozen=True)
class Share:
    """One token of a distribution, with p, q and the residual."""

    token_id: int
    text: str
    p: float
    q: float
    residual: float


@dataclass(frozen=True)
class Judged:
    """One token of a round: proposed by the draft, or put in by the target.

    Attributes:
        depth: 0 for the round's first position. In a tree several rows may have the same depth.
        position: among the new tokens of the text, 0 is the first; for a row that does not stand, where it would
            have stood.
        kind: "accepted"; "rejected"; "unjudged" (proposed after a rejection, or on a branch not taken);
            "resampled" (drawn from the residual at a rejection); "bonus" (drawn from p after all that was proposed was
            accepted); "plain" (drawn from p in a round in which nothing was proposed).
        p, q: of this token at this position; q is 1 where the draft is one-hot, and NaN for resampled and bonus tokens.
        accept: min(1, p/q): the probability of acceptance; NaN where nothing was judged.
        u: the uniform number it was compared with: accepted if u < accept; NaN when greedy or not judged.
        alpha: sum of min(p, q) over the vocabulary at this position: the probability that any proposal of this draft is
            accepted here; NaN where not known (unjudged).
        shares: the tokens worth showing, the proposed one and the largest of p, q and the residual among them; ()
            if unjudged.
        parent: the row of the round it hangs on; -1 for the text itself. Chains: depth - 1.
        ends: it is an end token that stands: the text ends here.
    """

    depth: int
    position: int
    token_id: int
    text: str
    kind: Kind
    p: float
    q: float
    accept: float
    u: float
    alpha: float
    shares: tuple[Share, ...]
    parent: int
    ends: bool = False


@dataclass(frozen=True, kw_only=True)
class DraftReady(Event):
    """The draft is loaded and fits the target.

    Attributes:
        title: for a person: "the model itself in int8".
        notes: what a person should know (padded vocabulary, off-grid weights, store of N tokens), in words.
        bytes: memory that the draft takes beyond the target.
    """

    draft: str
    title: str
    notes: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, kw_only=True)
class FirstToken(Event):
    """The first new token, drawn from the prefill's own distribution before any draft."""

    token_id: int
    text: str
    p: float
    ends: bool


@dataclass(frozen=True, kw_only=True)
class SpeculativeRound(Event):
    """One round: propose, verify in one target pass, accept or reject.

    Attributes:
        index: 0 for the first.
        gamma: how many tokens were asked of the draft; fewer may have been proposed.
        tokens: the judged tokens in order of the rows, then the resampled or bonus one.
        emitted: how many new tokens stand after the round: the accepted ones and the last.
        source: where the proposal came from, in the draft's words.
        draft_ms, verify_ms, judge_ms: own compute of the three parts.
        target_positions, draft_positions: cache lengths before the round, with everything proposed, and after cropping.
        target_bytes, draft_bytes: of the two caches after cropping.
    """

    index: int
    gamma: int
    tokens: tuple[Judged, ...]
    emitted: int
    source: str
    draft_ms: float
    verify_ms: float
    judge_ms: float
    target_positions: tuple[int, int, int]
    draft_positions: tuple[int, int, int]
    target_bytes: int
    draft_bytes: int


@dataclass(frozen=True, kw_only=True)
class PlainToken(Event):
    """One step of the plain run in the same process, the same dtype and the same rules: what speculation is
    measured against."""

    index: int
    token_id: int
    text: str
    ms: float


@dataclass(frozen=True, kw_only=True)
class SpeculativeFigures(Event):
    """What a run came to; each figure is defined where it is shown. None: cannot be told (0 of 0).

    Attributes:
        draft, gamma: what ran; `gamma` 0 means adaptive, then `mean_gamma` tells.
        drafted, judged, accepted: tokens proposed; of those compared; of those accepted.
        accept_judged: accepted / judged. accept_drafted: accepted / drafted.
        by_depth: for each depth (judged, accepted).
        tokens_per_pass: emitted / target passes.
        alpha: mean of sum min(p, q) over judged positions; `total_variation` is the mean of half sum |p - q|:
            alpha = 1 - it.
        expected_tokens: (1 - alpha^(gamma+1)) / (1 - alpha), or gamma + 1 at alpha 1.
        c: draft milliseconds a proposed token / plain milliseconds a token. v: verification milliseconds / plain ones.
        predicted: tokens a pass from alpha, over gamma c + v. measured: plain ms a token / speculative ms a token.
        break_even_alpha: the alpha at which the prediction is 1 with this gamma, c and v; None if none below 1 is
            enough.
        plain_ms, speculative_ms: medians a token.
        verdict: in words; says "slower, because ..." where it is.
    """

    draft: str
    gamma: int
    mean_gamma: float
    rounds: int
    new_tokens: int
    drafted: int
    judged: int
    accepted: int
    accept_judged: float | None
    accept_drafted: float | None
    by_depth: tuple[tuple[int, int], ...]
    tokens_per_pass: float | None
    alpha: float | None
    total_variation: float | None
    expected_tokens: float | None
    c: float | None
    v: float | None
    predicted: float | None
    measured: float | None
    break_even_alpha: float | None
    plain_ms: float
    speculative_ms: float
    verdict: str


@dataclass(frozen=True, kw_only=True)
class SweepPoint(Event):
    """One gamma of the sweep: measured and predicted speed-up, tokens a pass."""

    gamma: int
    figures: SpeculativeFigures


@dataclass(frozen=True, kw_only=True)
class DraftRanked(Event):
    """One draft over the prompt set.

    Attributes:
        draft: its name; `title` for a person. `skipped`: why it could not run; "" if it ran.
        by_kind: for each kind of prompt (name, measured speed-up, accept_judged); NaN where none was measured yet.
        bytes: memory beyond the target.
        prompts: prompts measured so far, of `of_prompts`; the last event of a draft counts.
    """

    draft: str
    title: str
    skipped: str
    figures: SpeculativeFigures | None
    by_kind: tuple[tuple[str, float, float], ...]
    bytes: int
    prompts: int = 0
    of_prompts: int = 0


@dataclass(frozen=True, kw_only=True)
class IdentityShown(Event):
    """The analytic identity: what the rule emits equals p, without any draw.

    Attributes:
        total_variation: between p and q at the trial's position: how far the draft is.
        largest_difference: of |emitted(x) - p(x)| over the vocabulary, in float64.
    """

    total_variation: float
    largest_difference: float
    shares: tuple[Share, ...]


@dataclass(frozen=True, kw_only=True)
class TrialPoint(Event):
    """The trial so far.

    Attributes:
        runs: pairs of tokens drawn so far, of `planned`.
        statistic, degrees: chi-square of the pairs against p, cells of small expectation pooled. Without a degree of
            freedom (one group) the statistic is 0, or infinite where a pair came that has no probability.
        p_value: of the statistic under p.
        total_variation: between the observed pairs and p, beside `expected_variation`: what sampling alone would give.
        power: the probability that this trial turns red (p < 1e-6) if the pairs came from the draft instead, with
            so many runs.
        pairs: the most probable pairs (text, text, expected, observed); the last stands for all others.
    """

    runs: int
    planned: int
    statistic: float
    degrees: int
    p_value: float
    total_variation: float
    expected_variation: float
    power: float
    pairs: tuple[tuple[str, str, float, int], ...]


def chi_square_in_words(statistic: float, degrees: int) -> str:
    """The statistic of a `TrialPoint` in words; without a degree of freedom there is no test, or none is needed."""
    if degrees >= 1:
        return f"χ² = {statistic:,.0f} with {degrees:,} degree{'' if degrees == 1 else 's'} of freedom"
    if isinf(statistic):
        return "a pair came to which the model gives no probability at all: that needs no chi-square test"
    return "all pairs fall into one group, so there is no chi-square to test"
