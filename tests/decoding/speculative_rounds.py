"""Rounds on small vocabularies: the kernel's emission by enumeration, and pairs of tokens drawn through it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

from lab.decoding.drafts.base import Proposal
from lab.decoding.speculative.kernel import Mistake, RoundVerdict, judge
from lab.decoding.tree import Tree


def distribution(*weights: float) -> Tensor:
    """fp64, scaled to sum to 1."""
    made = torch.tensor(weights, dtype=torch.float64)
    return made / made.sum()


def outcomes(
    proposal: Proposal, p: Tensor, mistake: Mistake = "nothing", raw: Tensor | None = None
) -> Iterator[tuple[float, RoundVerdict]]:
    """Every way that the kernel can judge `proposal`, with its probability: u = 0 accepts, u = 1 rejects."""
    seen: set[tuple[str, ...]] = set()
    for us in product((0.0, 1.0), repeat=len(proposal.token_ids)):
        verdict = judge(proposal, p, (*us, 0.5), mistake=mistake, p_without_processors=raw)
        kinds = tuple(row.kind for row in verdict.rows)
        if kinds in seen:
            continue
        seen.add(kinds)
        weight = 1.0
        for row in verdict.rows:
            weight *= {"accepted": row.accept, "rejected": 1.0 - row.accept, "unjudged": 1.0}[row.kind]
        yield weight, verdict


def first_token(proposal: Proposal, verdict: RoundVerdict) -> Tensor:
    """The distribution of the first token of a round that was judged so."""
    if not verdict.path:
        return verdict.last_distribution.double()
    result = torch.zeros_like(verdict.last_distribution, dtype=torch.float64)
    result[proposal.token_ids[verdict.path[0]]] = 1.0
    return result


def kernel_emission(p: Tensor, q: Tensor, mistake: Mistake = "nothing", raw: Tensor | None = None) -> Tensor:
    """What `judge` itself emits at one position when x is drawn from q: no draw, all cases weighted."""
    rows = torch.stack((p, p))
    raws = None if raw is None else torch.stack((raw, raw))
    result = torch.zeros_like(p)
    for token in q.nonzero()[:, 0].tolist():
        proposal = Proposal.chain((token,), (q,))
        for weight, verdict in outcomes(proposal, rows, mistake, raws):
            result += float(q[token]) * weight * first_token(proposal, verdict)
    return result


Tables = tuple[Tensor, Tensor]
"""(vocab,) of the first token and (vocab, vocab) of the second by the first."""


def tables(seed: int, vocab: int, spread: float = 1.0) -> Tables:
    """Random distributions of two tokens."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(vocab, generator=generator, dtype=torch.float64)
    second = torch.randn(vocab, vocab, generator=generator, dtype=torch.float64)
    return (spread * first).softmax(-1), (spread * second).softmax(-1)


TREE_OF_SIX = Tree((-1, -1, 0, 0, 1, 1))


@torch.inference_mode()
def sample_pairs(
    p: Tables,
    q: Tables,
    runs: int,
    *,
    seed: int = 0,
    mistake: Mistake = "nothing",
    raw: Tables | None = None,
    tree: bool = False,
    stale: bool = False,
) -> np.ndarray:
    """(vocab, vocab) counts of the first two tokens that speculative rounds emit.

    Args:
        tree: propose the draft's two best tokens and the two best after each; else a chain of two drawn tokens.
        stale: the second round reads a context that still holds the rejected token, as a cache that was not
            cropped does.
    """
    uniforms = iter(np.random.default_rng(seed).random(runs * 16).tolist())
    counts = np.zeros((len(p[0]), len(p[0])), dtype=np.int64)
    flat = torch.ones_like(p[0]) / len(p[0])  # of a third token, which nobody looks at

    @cache
    def cumulated(row: int) -> list[float]:
        return (q[0] if row < 0 else q[1][row]).cumsum(0).tolist()[:-1]

    def drafted(row: int) -> int:
        return bisect(cumulated(row), next(uniforms))

    roots = q[0].topk(2).indices.tolist()
    best = (*roots, *(token for root in roots for token in q[1][root].topk(2).indices.tolist()))

    @cache
    def first_round(tokens: tuple[int, ...]) -> tuple[Proposal, Tensor, Tensor | None]:
        shape = TREE_OF_SIX if tree else Tree.chain(2)
        qs = (None,) * 6 if tree else (q[0], q[1][tokens[0]])

        def rows(tables_: Tables) -> Tensor:
            pairs = zip(tokens, shape.depths(), strict=True)
            return torch.stack((tables_[0], *(tables_[1][token] if depth == 0 else flat for token, depth in pairs)))

        return Proposal(tokens, qs, shape), rows(p), None if raw is None else rows(raw)

    @cache
    def second_round(first: int, token: int, context: int) -> tuple[Proposal, Tensor, Tensor | None]:
        raws = None if raw is None else torch.stack((raw[1][context], flat))
        return Proposal.chain((token,), (q[1][first],)), torch.stack((p[1][context], flat)), raws

    for _ in range(runs):
        one = drafted(-1)
        proposal, rows, raws = first_round(best if tree else (one, drafted(one)))
        us = [next(uniforms) for _ in range(len(rows))]
        verdict = judge(proposal, rows, us, mistake=mistake, p_without_processors=raws)
        tokens = [proposal.token_ids[row] for row in verdict.path] + [verdict.last_token_id]
        if len(tokens) == 1:
            context = proposal.token_ids[0] if stale else tokens[0]
            proposal, rows, raws = second_round(tokens[0], drafted(tokens[0]), context)
            us = [next(uniforms), next(uniforms)]
            verdict = judge(proposal, rows, us, mistake=mistake, p_without_processors=raws)
            tokens.append(proposal.token_ids[0] if verdict.path else verdict.last_token_id)
        counts[tokens[0], tokens[1]] += 1
    return counts
