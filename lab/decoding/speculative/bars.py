"""The tokens of a position worth showing: those that p, q or the residual give weight to.

Nothing is sorted over the vocabulary: a threshold finds the few, and one transfer a round brings them over.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lab.decoding.drafts.base import Proposal
from lab.decoding.speculative.kernel import RoundVerdict

LEAST = 1e-3
"""Probability from which a token is worth showing: 49,152 tokens of a vocabulary have 2e-5 each."""

MOST = 96
"""Tokens kept for one position."""


@dataclass(frozen=True)
class Bars:
    """p, q and the residual of some tokens at one position, the weightiest first.

    Attributes:
        residual: norm(max(0, p - q)); 0 everywhere where nothing was proposed.
        alpha: sum of min(p, q) over the whole vocabulary; NaN where nothing was proposed.
    """

    token_ids: tuple[int, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    residual: tuple[float, ...]
    alpha: float


_NOTHING = Bars((), (), (), (), float("nan"))


@dataclass(frozen=True)
class _Position:
    """One position to describe: a row of p, what was proposed there, and the tokens that must be named."""

    row: int
    proposed: int | None
    must: tuple[int, ...]
    alpha: float


def bars_of(proposal: Proposal, verdict: RoundVerdict, p: Tensor | None) -> tuple[Bars | None, ...]:
    """For each proposed token that was judged, then for the target's own: its position. None where not judged.

    Args:
        p: (n + 1, vocab); None where the target is greedy.
    """
    positions: list[_Position | None] = []
    parents, tokens = proposal.tree.parents, proposal.token_ids
    end = verdict.path[-1] if verdict.path else -1
    rejected: int | None = None
    for index, row in enumerate(verdict.rows):
        if row.kind == "unjudged":
            positions.append(None)
            continue
        if row.kind == "rejected" and parents[index] == end:
            rejected = index
        positions.append(_Position(parents[index] + 1, index, (tokens[index],), row.alpha))
    last = verdict.last_token_id
    if verdict.last_kind == "resampled" and rejected is not None:
        alpha = verdict.rows[rejected].alpha
        positions.append(_Position(end + 1, rejected, (last, tokens[rejected]), alpha))
    else:
        positions.append(_Position(end + 1, None, (last,), float("nan")))
    return _greedy_bars(proposal, verdict, positions) if p is None else _drawn_bars(proposal, p, positions)


def bars_of_one(p: Tensor, token: int) -> Bars:
    """The tokens of one (vocab,) distribution, `token` among them; nothing was proposed there."""
    return _drawn_bars(Proposal.chain(()), p[None], [_Position(0, None, (token,), float("nan"))])[0] or _NOTHING


def shares_between(p: Tensor, q: Tensor) -> Bars:
    """The tokens worth showing of two (vocab,) distributions, with the residual between them."""
    alpha = float(torch.minimum(p, q).sum())
    token = int(q.argmax())
    place = _Position(0, 0, (token,), alpha)
    return _drawn_bars(Proposal.chain((token,), (q,)), p[None], [place])[0] or _NOTHING


def _greedy_bars(
    proposal: Proposal, verdict: RoundVerdict, positions: list[_Position | None]
) -> tuple[Bars | None, ...]:
    """All of p is on the token that the target takes."""
    chosen = {verdict.path[-1] + 1 if verdict.path else 0: verdict.last_token_id}
    for row in verdict.path:
        chosen[proposal.tree.parents[row] + 1] = proposal.token_ids[row]
    found: list[Bars | None] = []
    for place in positions:
        if place is None:
            found.append(None)
            continue
        wanted = chosen[place.row]
        offered = None if place.proposed is None else proposal.token_ids[place.proposed]
        ids = tuple(dict.fromkeys(i for i in (wanted, offered) if i is not None))
        missed = offered is not None and offered != wanted
        found.append(
            Bars(
                ids,
                tuple(float(i == wanted) for i in ids),
                tuple(float(i == offered) for i in ids),
                tuple(float(missed and i == wanted) for i in ids),
                place.alpha,
            )
        )
    return tuple(found)


def _drawn_bars(proposal: Proposal, p: Tensor, positions: list[_Position | None]) -> tuple[Bars | None, ...]:
    parts: list[Tensor] = []
    for number, place in enumerate(positions):
        if place is None:
            continue
        here = p[place.row]
        q = None if place.proposed is None else proposal.q[place.proposed]
        worth = here > LEAST if q is None else torch.maximum(here, q) > LEAST
        must = torch.tensor([*place.must], device=p.device)
        ids = torch.cat((worth.nonzero()[:, 0], must, here.argmax()[None]))
        shares = here[ids]
        drafted = torch.zeros_like(shares) if q is None else q[ids]
        numbered = torch.full_like(shares, number)
        parts.append(torch.stack([t.double() for t in (numbered, ids, shares, drafted)]))
    numbers, ids_, ps, qs = torch.cat(parts, dim=1).tolist()
    gathered: list[dict[int, tuple[float, float]]] = [{} for _ in positions]
    for number, token, share, drafted_share in zip(numbers, ids_, ps, qs, strict=True):
        gathered[int(number)][int(token)] = (share, drafted_share)
    return tuple(
        None if place is None else _sorted(gathered[number], place, proposal) for number, place in enumerate(positions)
    )


def _sorted(found: dict[int, tuple[float, float]], place: _Position, proposal: Proposal) -> Bars:
    one_hot = None
    if place.proposed is not None and proposal.q[place.proposed] is None:
        one_hot = proposal.token_ids[place.proposed]
    left = 1.0 - place.alpha
    rows = []
    for token, (p, drawn) in found.items():
        q = drawn if one_hot is None else float(token == one_hot)
        over = max(0.0, p - q) / left if place.proposed is not None and left > 0.0 else 0.0
        rows.append((token, p, q, min(over, 1.0)))
    must = set(place.must)
    rows.sort(key=lambda r: (r[0] not in must, -max(r[1:])))
    rows = sorted(rows[:MOST], key=lambda r: -max(r[1:]))
    ids, ps, qs, residuals = (tuple(column) for column in zip(*rows, strict=True))
    return Bars(ids, ps, qs, residuals, place.alpha)
