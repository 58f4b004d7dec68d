"""The accept/reject rule: what stands of a proposal, and the one token that the target adds.

For a proposed token x, drawn from q, with p the target's distribution at that position (Leviathan et al. 2023;
Chen et al. 2023):

    accept with probability min(1, p(x) / q(x))
    at a rejection draw from the residual, norm(max(0, p - q)), and end the round
    after the last accepted token draw one more from p: the bonus

What comes out follows p exactly, whatever q is. Several candidates for one position (SpecInfer, Miao et al. 2024;
EAGLE, Li et al. 2024) are tried one after the other: each rejection replaces p by its residual, and the next
candidate is judged against that. A candidate that nothing was drawn for (look-up) has a q of 1 on itself, so it is
accepted with p(x), and its residual is p without x.

All randomness comes in as `uniforms`: the same numbers give the same verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Literal, get_args

import torch
from torch import Tensor

from lab.decoding.drafts.base import Proposal
from lab.decoding.sampling import draw
from lab.decoding.speculative.residual import (
    Mistake,
    believed,
    is_one_hot,
    probability,
    ratio,
    replacement,
    residual,
)
from lab.errors import BadInput, ModelError, shown

__all__ = ["Mistake", "RoundVerdict", "RowVerdict", "draw", "judge", "residual"]

RowKind = Literal["accepted", "rejected", "unjudged"]


@dataclass(frozen=True)
class RowVerdict:
    """What became of one proposed token.

    Attributes:
        kind: "unjudged" where an earlier token of its path was rejected, a sibling before it was accepted, or its
            parent does not stand.
        p: the target's probability of the token after its parent, as the target gave it.
        q: the draft's, as the ratio used it; 1 where nothing was drawn.
        accept: the probability of acceptance, min(1, p/q). For a sibling after a rejected one p is the residual's.
            NaN if unjudged.
        u: accepted if u < accept. NaN if unjudged, or where the target is greedy (p is one-hot).
        alpha: the probability that a proposal is accepted at this position: sum of min(p, q), q the distribution the
            token was truly drawn from; with candidates that nothing was drawn for, the sum of their p. NaN if unjudged.
        total_variation: half the sum of |p - q| at this position, 1 - alpha up to rounding. NaN if unjudged.
    """

    kind: RowKind
    p: float
    q: float
    accept: float = nan
    u: float = nan
    alpha: float = nan
    total_variation: float = nan


@dataclass(frozen=True)
class RoundVerdict:
    """What became of one round.

    Attributes:
        rows: one for each proposed token, in the proposal's order.
        path: the accepted rows, root first; `len(path) + 1` tokens stand.
        last_token_id: the token that the target adds.
        last_kind: "resampled" at a rejection, else "bonus".
        last_distribution: (vocab,) what it was drawn from, in p's dtype. A view of `p` for a bonus token.
        last_u: the uniform number it was drawn with; NaN where that distribution is one-hot.
    """

    rows: tuple[RowVerdict, ...]
    path: tuple[int, ...]
    last_token_id: int
    last_kind: Literal["resampled", "bonus"]
    last_distribution: Tensor
    last_u: float


def judge(
    proposal: Proposal,
    p: Tensor,
    uniforms: Sequence[float],
    *,
    mistake: Mistake = "nothing",
    p_without_processors: Tensor | None = None,
) -> RoundVerdict:
    """Accept or reject what was proposed, and draw the token after it.

    Args:
        proposal: n tokens, a chain or a tree. Siblings are tried in their order and must have no q.
        p: (n + 1, vocab) the target's distributions, after all processors; row 0 follows the text so far, row i + 1
            follows proposed token i. fp32, or fp64 for an exact comparison.
        uniforms: numbers in [0, 1]: `uniforms[i]` judges row i, `uniforms[n]` draws the last token. Those of
            rows that are not judged are not used. Greedy (p one-hot) reads none: `()` will do.
        mistake: a known error made on purpose; see `residual.py` for what each does. "cache_not_cropped" is the
            loop's and changes nothing here.
        p_without_processors: (n + 1, vocab) the softmax of the raw logits, for "processors_skipped".

    Raises:
        BadInput: shapes that do not fit, a uniform number outside [0, 1] or missing, an unknown mistake.
        ModelError: the target's or the draft's distribution holds NaN.
        ValueError: the draft breaks its contract: siblings with a q.
    """
    _check(proposal, p, mistake, p_without_processors)
    ids, tree = proposal.token_ids, proposal.tree
    count = len(ids)
    # one gather for all rows: on a GPU each number fetched is a wait
    at = torch.tensor([(parent + 1) * p.shape[1] + i for parent, i in zip(tree.parents, ids, strict=True)])
    target_p = p.take(at.to(device=p.device, dtype=torch.long)).tolist()
    rows = [RowVerdict("unjudged", target_p[i], probability(proposal.q[i], ids[i])) for i in range(count)]

    node = -1
    path: list[int] = []
    while children := tree.children(node):
        here = p[node + 1]
        greedy = _greedy(here)
        alpha, variation = _overlap(here, [target_p[i] for i in children], [proposal.q[i] for i in children])
        rejected: list[tuple[int, Tensor | None]] = []
        left = here  # what the next candidate is judged against: p, then its residuals
        for row in children:
            q = believed(proposal.q[row], here.shape[0], mistake)
            drafted = rows[row].q if q is proposal.q[row] else probability(q, ids[row])
            accept = ratio(target_p[row] if left is here else probability(left, ids[row]), drafted)
            u = nan if greedy else _uniform(uniforms, row)
            stands = accept >= 1.0 or u < accept
            kind: RowKind = "accepted" if stands else "rejected"
            rows[row] = RowVerdict(kind, target_p[row], drafted, accept, u, alpha, variation)
            if stands:
                break
            rejected.append((ids[row], q))
            left = residual(left, q, ids[row])
        if not stands:
            raw = None if p_without_processors is None else p_without_processors[node + 1]
            last = left if mistake == "nothing" else replacement(here, rejected, mistake, raw)
            return _ended(rows, path, "resampled", last, uniforms)
        path.append(row)
        node = row
    return _ended(rows, path, "bonus", p[node + 1], uniforms)


def _ended(
    rows: list[RowVerdict],
    path: list[int],
    kind: Literal["resampled", "bonus"],
    distribution: Tensor,
    uniforms: Sequence[float],
) -> RoundVerdict:
    if _greedy(distribution):
        token_id, u = int(distribution.argmax()), nan
    else:
        u = _uniform(uniforms, len(rows))
        token_id = draw(distribution, u)
    return RoundVerdict(tuple(rows), tuple(path), token_id, kind, distribution, u)


def _greedy(p: Tensor) -> bool:
    """Whether all is on one token. NaN anywhere ends here, before it can look like a rejection."""
    peak = float(p.amax())
    if isnan(peak):
        raise ModelError(
            "The target's distribution holds NaN.",
            remedy="Run the model in fp32, or undo what was done to its weights.",
        )
    return peak >= 1.0 and is_one_hot(p)


def _overlap(p: Tensor, shares: list[float], qs: list[Tensor | None]) -> tuple[float, float]:
    """Sum of min(p, q), and half the sum of |p - q|, at one position. `shares`: p of each candidate there."""
    q = qs[0]
    if q is None:
        if any(other is not None for other in qs):
            raise ValueError("siblings with a q: candidates for one position must be one-hot")
        alpha = sum(shares)
        return alpha, max(0.0, float(p.sum()) - alpha)
    if len(qs) > 1:
        raise ValueError("siblings with a q: candidates for one position must be one-hot")
    alpha = float(torch.minimum(p, q).sum())
    if isnan(alpha):
        raise ModelError("The draft's distribution holds NaN.", remedy="Use another draft, or run it in fp32.")
    # |a - b| = a + b - 2 min(a, b): sums instead of a third pass over the vocabulary
    return alpha, max(0.0, (float(p.sum()) + float(q.sum())) / 2 - alpha)


def _uniform(uniforms: Sequence[float], index: int) -> float:
    if index >= len(uniforms):
        raise BadInput(
            f"{len(uniforms)} uniform numbers were given; number {index + 1} is needed.",
            remedy="Give one for each proposed token and one for the last draw.",
        )
    u = float(uniforms[index])
    if not 0.0 <= u <= 1.0:
        raise BadInput(f"Uniform number {index + 1} is {u}.", remedy="Give numbers from 0 to 1.")
    return u


def _check(proposal: Proposal, p: Tensor, mistake: str, raw: Tensor | None) -> None:
    count = len(proposal.token_ids)
    if mistake not in get_args(Mistake):
        raise BadInput(f"mistake {shown(mistake)} is unknown.", remedy=f"Use one of {', '.join(get_args(Mistake))}.")
    if p.ndim != 2 or p.shape[0] != count + 1 or not p.is_floating_point():
        raise BadInput(
            f"p has the shape {tuple(p.shape)} and dtype {p.dtype}; {count} proposed tokens need {count + 1} rows.",
            remedy="Give (proposed + 1, vocab) probabilities.",
        )
    if len(proposal.q) != count or len(proposal.tree.parents) != count:
        raise BadInput(
            f"{count} tokens have {len(proposal.q)} q and {len(proposal.tree.parents)} rows of a tree.",
            remedy="Give one of each for every token.",
        )
    vocab = p.shape[1]
    for token_id, q in zip(proposal.token_ids, proposal.q, strict=True):
        if not 0 <= token_id < vocab:
            raise BadInput(f"Token {token_id} is outside the vocabulary of {vocab}.", remedy="Use a fitting draft.")
        if q is not None and q.shape != (vocab,):
            raise BadInput(f"A q has the shape {tuple(q.shape)}; p has {vocab} tokens.", remedy="Pad q with zeros.")
    if mistake == "processors_skipped" and (raw is None or raw.shape != p.shape):
        raise BadInput(
            f"p_without_processors has the shape {None if raw is None else tuple(raw.shape)}; p has {tuple(p.shape)}.",
            remedy="This mistake needs the softmax of the raw logits, one row for each row of p.",
        )
