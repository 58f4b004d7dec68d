"""The pieces of the accept/reject rule: ratio, residual, and each known mistake's version of them.

The mistakes, all seen in published code:

    no_residual             at a rejection the replacement is drawn from p
    wrong_q                 ratio and residual use a q that nothing was drawn from: the draft's at twice its temperature
                            (the square root, normalised), or a uniform one for a token that nothing was drawn for
    processors_skipped      the replacement's residual is taken from the softmax of the raw logits
    top_token_on_rejection  the replacement is the target's most probable token
    cache_not_cropped       made by the loop, not here: rejected tokens stay in the cache

One-hot instead of the q that was sampled from is no mistake of the output: x is then accepted with p(x), else replaced
by p without x, which is p for any x, however it was drawn. It costs acceptance only, so it is not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Mistake = Literal[
    "nothing", "no_residual", "wrong_q", "processors_skipped", "cache_not_cropped", "top_token_on_rejection"
]


def probability(distribution: Tensor | None, token_id: int) -> float:
    """Of one token, in double precision; 1 where nothing was drawn (None)."""
    return 1.0 if distribution is None else float(distribution[token_id].item())


def ratio(p: float, q: float) -> float:
    """min(1, p/q). With q = 0, which nothing drawn can have but rounding can make: 1 if the target likes it at all,
    else 0, so that no token of probability 0 is ever accepted."""
    if p <= 0.0:
        return 0.0
    return 1.0 if p >= q else p / q


def is_one_hot(distribution: Tensor) -> bool:
    """Whether all probability is on one token: nothing is left to chance. Not true of what merely rounds to 1."""
    return float(distribution.amax()) >= 1.0 and int(torch.count_nonzero(distribution)) == 1


def one_hot(distribution: Tensor, token_id: int) -> Tensor:
    """All on `token_id`; shape, dtype and device as `distribution`."""
    result = torch.zeros_like(distribution)
    result[token_id] = 1.0
    return result


def residual(p: Tensor, q: Tensor | None, token_id: int) -> Tensor:
    """norm(max(0, p - q)): where the target wants more than the draft gave.

    Args:
        p: (vocab,) distribution.
        q: (vocab,), or None for 1 on `token_id`.
        token_id: the rejected token.

    Returns:
        (vocab,) in p's dtype. p itself where nothing is left by rounding (p = q): 0/0 would be NaN.
    """
    if q is None:
        if float(p[token_id]) == 0.0:
            return p
        left = p.clone()
        left[token_id] = 0.0
    else:
        left = (p - q.to(p.device)).clamp_(min=0.0)
    total = float(left.sum())
    return left.div_(total).to(p.dtype) if total > 0.0 else p


def believed(q: Tensor | None, vocab: int, mistake: Mistake) -> Tensor | None:
    """The q that ratio and residual use: the true one, unless the mistake is "wrong_q"."""
    if mistake != "wrong_q":
        return q
    if q is None or is_one_hot(q):
        return torch.full((vocab,), 1.0 / vocab, device=None if q is None else q.device)
    flat = q.sqrt()
    return flat / flat.sum()


def replacement(
    p: Tensor, rejected: Sequence[tuple[int, Tensor | None]], mistake: Mistake, raw: Tensor | None = None
) -> Tensor:
    """What the token after a rejection is drawn from.

    Args:
        p: (vocab,) the target's distribution at the position.
        rejected: each rejected candidate with the q that was used for it (`believed`), in order.
        raw: (vocab,) p without processors, for "processors_skipped".
    """
    if mistake == "no_residual":
        return p
    if mistake == "top_token_on_rejection":
        return one_hot(p, int(p.argmax()))
    left = raw if mistake == "processors_skipped" and raw is not None else p
    for token_id, q in rejected:
        left = residual(left, q, token_id)
    return left
