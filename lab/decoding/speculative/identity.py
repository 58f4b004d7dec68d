"""What the accept/reject rule emits, computed and not drawn: the proof that it is exactly p.

One position, a token drawn from q:

    emitted(x) = min(p(x), q(x)) + (1 - sum min(p, q)) * residual(x)

With the residual norm(max(0, p - q)) the second term is max(0, p(x) - q(x)), since what is missing from the minimum
is what is missing on both sides; so the sum is p(x) (Leviathan et al. 2023, appendix A.1). Each known mistake has
such a formula of its own, and its distance from p says how soon a trial by draws must find it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lab.decoding.speculative.residual import Mistake, believed, is_one_hot, replacement
from lab.errors import BadInput


def alpha(p: Tensor, q: Tensor) -> float:
    """Sum of min(p, q): the probability that a token drawn from q is accepted. (vocab,) each, any float dtype."""
    return float(torch.minimum(_double(p), _double(q)).sum())


def total_variation(p: Tensor, q: Tensor) -> float:
    """Half the sum of |p - q|: 0 for equal distributions, 1 for disjoint ones; 1 - alpha where both sum to 1."""
    return float((_double(p) - _double(q)).abs().sum()) / 2


def emitted(
    p: Tensor, q: Tensor, mistake: Mistake = "nothing", *, p_without_processors: Tensor | None = None
) -> Tensor:
    """The distribution of the token that stands at one position when x is drawn from q and judged.

    Args:
        p: (vocab,) the target's distribution.
        q: (vocab,) what the proposal is drawn from; one-hot for look-up.
        mistake: the rule's mistake. "cache_not_cropped" spoils later positions, not this one.
        p_without_processors: (vocab,) for "processors_skipped".

    Returns:
        (vocab,) fp64, equal to p for "nothing" up to rounding in fp64; p and q are scaled to sum to 1 in fp64 before.

    Raises:
        BadInput: shapes that differ, or "processors_skipped" without `p_without_processors`.
    """
    _check(p, q, mistake, p_without_processors)
    p, q = _double(p), _double(q)
    raw = None if p_without_processors is None else _double(p_without_processors)
    proposed = int(q.argmax()) if is_one_hot(q) else None
    used = believed(None if proposed is not None else q, p.shape[0], mistake)
    if proposed is not None and used is None:
        accept = p  # q is 1 on the only token that can be proposed
    else:
        assert used is not None  # noqa: S101 - None only for a one-hot q, above
        accept = torch.where(p >= used, 1.0, p / used.clamp_min(torch.finfo(torch.float64).tiny))
    stands = q * accept
    last = replacement(p, [(proposed if proposed is not None else 0, used)], mistake, raw)
    return stands + (q - stands).sum() * last


def emitted_by_candidates(
    p: Tensor, candidates: Sequence[int], mistake: Mistake = "nothing", *, p_without_processors: Tensor | None = None
) -> Tensor:
    """The same for several candidates of one position that nothing was drawn for, tried in order (a tree's siblings).

    Candidate k is reached if all before it were rejected, and accepted with what p leaves it then:
    p(x_k) / (1 - sum of p over those before). So it is emitted with p(x_k), and the rest of p follows at the end.

    Args:
        candidates: distinct token ids; () gives p (a bonus token).

    Returns:
        (vocab,) fp64.

    Raises:
        BadInput: candidates that repeat or lie outside the vocabulary, and as `emitted`.
    """
    _check(p, p, mistake, p_without_processors)
    if len(set(candidates)) != len(candidates) or any(not 0 <= x < p.shape[0] for x in candidates):
        raise BadInput(f"The candidates are {tuple(candidates)}.", remedy="Give distinct tokens of the vocabulary.")
    p = _double(p)
    raw = None if p_without_processors is None else _double(p_without_processors)
    result = torch.zeros_like(p)
    if not candidates:
        return p.clone()
    reached, left = 1.0, p
    rejected: list[tuple[int, Tensor | None]] = []
    for token_id in candidates:
        used = believed(None, p.shape[0], mistake)
        wanted = float(left[token_id])
        drafted = 1.0 if used is None else float(used[token_id])
        accept = min(1.0, wanted / drafted)
        result[token_id] += reached * accept
        reached *= 1.0 - accept
        rejected.append((token_id, used))
        left = replacement(p, rejected, "nothing")
    return result + reached * replacement(p, rejected, mistake, raw)


def largest_difference(p: Tensor, emitted_distribution: Tensor) -> float:
    """max |emitted(x) - p(x)| over the vocabulary, in fp64."""
    return float((_double(p) - _double(emitted_distribution)).abs().max())


def _double(distribution: Tensor) -> Tensor:
    """In fp64 and summing to 1 there: an fp32 softmax is off by 1e-7."""
    double = distribution.detach().to(device="cpu", dtype=torch.float64)
    total = float(double.sum())
    if not 0.0 < total < float("inf"):
        raise BadInput(f"The distribution sums to {total}.", remedy="Give probabilities, without NaN.")
    return double / total


def _check(p: Tensor, q: Tensor, mistake: Mistake, raw: Tensor | None) -> None:
    if p.ndim != 1 or q.shape != p.shape or (raw is not None and raw.shape != p.shape):
        raise BadInput(
            f"p has the shape {tuple(p.shape)}, q {tuple(q.shape)}.",
            remedy="Give two distributions over one vocabulary.",
        )
    if mistake == "processors_skipped" and raw is None:
        raise BadInput("p_without_processors is missing.", remedy="Give the softmax of the raw logits.")
