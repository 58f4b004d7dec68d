"""The best continuations of all running beams, in an order that is the same on every machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.errors import ModelError


@dataclass(frozen=True)
class Continuation:
    """One running beam and one next token.

    Attributes:
        beam: the row of the beam.
        log_prob: of the token given the beam's text, after the processors.
        score: the beam's sum and `log_prob`, added in fp32.
    """

    beam: int
    token_id: int
    log_prob: float
    score: float


def best_continuations(log_probs: Tensor, sums: list[float], count: int) -> list[Continuation]:
    """The `count` best continuations by score, best first; fewer if fewer are possible (log-probability above -inf).

    Equal scores: the lower beam goes first, then the lower token id, also at the border of `count`. transformers
    takes `torch.topk` as it comes, which promises no order among equals and differs between devices and sizes.

    Args:
        log_probs: (beam, vocab) fp32.
        sums: for each beam, the sum of its log-probabilities so far.

    Raises:
        ModelError: the model gave numbers that are none (NaN).
    """
    vocab = log_probs.shape[1]
    totals = log_probs + torch.tensor(sums, dtype=log_probs.dtype, device=log_probs.device)[:, None]
    flat, edges = totals.reshape(-1), log_probs.reshape(-1)
    take = min(count + 1, flat.shape[0])
    best = torch.topk(flat, take)
    picked = best.indices
    # One transfer a step; float64 holds fp32 numbers and these indices exactly.
    rows = torch.stack((best.values.double(), edges[picked].double(), picked.double())).tolist()
    found = list(zip(*rows, strict=True))
    if any(math.isnan(score) for score, _, _ in found):
        raise ModelError("The model gave logits that are not numbers (NaN).", remedy="Run it in float32.")
    if take > count and found[count][0] == found[count - 1][0] > -math.inf:
        found = _with_all_ties(found, flat, edges, found[count - 1][0])
    found.sort(key=lambda item: (-item[0], item[2]))
    return [
        Continuation(int(index) // vocab, int(index) % vocab, log_prob, score)
        for score, log_prob, index in found[:count]
        if score > -math.inf
    ]


def _with_all_ties(
    found: list[tuple[float, float, float]], flat: Tensor, edges: Tensor, border: float
) -> list[tuple[float, float, float]]:
    """Those above the border, and all that are on it instead of the few that `topk` happened to take."""
    tied = torch.nonzero(flat == border).reshape(-1)
    rows = zip(edges[tied].tolist(), tied.tolist(), strict=True)
    return [item for item in found if item[0] > border] + [(border, log_prob, float(i)) for log_prob, i in rows]
