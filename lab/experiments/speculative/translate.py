"""From what the loop gives to events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan

from lab.decoding.speculative.bars import Bars
from lab.decoding.speculative.rounds import Round
from lab.events.speculative import Judged, Share, SpeculativeRound

SHARES = 8
"""Tokens shown for a position in the event; more can be asked for."""

TextOf = Callable[[int], str]


def shares_of(bars: Bars | None, text_of: TextOf, must: Sequence[int] = (), most: int = SHARES) -> tuple[Share, ...]:
    """The weightiest tokens of a position and those of `must`, the weightiest first."""
    if bars is None:
        return ()
    order = [i for i, token in enumerate(bars.token_ids) if token in must]
    for column in (bars.residual, bars.p, bars.q):
        # The largest of each belongs to the picture, whatever the others are.
        best = max(range(len(column)), key=column.__getitem__)
        if column[best] > 0.0:
            order.append(best)
    order = list(dict.fromkeys([*order, *range(len(bars.token_ids))]))[:most]
    return tuple(
        Share(bars.token_ids[i], text_of(bars.token_ids[i]), bars.p[i], bars.q[i], bars.residual[i])
        for i in sorted(order)
    )


def round_event(done: Round, base: int, texts: Sequence[str], text_of: TextOf) -> SpeculativeRound:
    """One round as an event.

    Args:
        base: new tokens in the text before the round.
        texts: what each token that stands adds to the text.
        text_of: shows a token by itself.
    """
    proposal, verdict = done.proposal, done.verdict
    depths, parents = proposal.tree.depths(), proposal.tree.parents
    stands = {row: texts[i] for i, row in enumerate(done.path)}
    last_of_path = done.path[-1] if done.path else -1
    tokens: list[Judged] = []
    for row, (token, judged) in enumerate(zip(proposal.token_ids, verdict.rows, strict=True)):
        tokens.append(
            Judged(
                depth=depths[row],
                position=base + depths[row],
                token_id=token,
                text=stands.get(row, text_of(token)),
                kind=judged.kind,
                p=judged.p,
                q=judged.q,
                accept=judged.accept,
                u=judged.u,
                alpha=judged.alpha,
                shares=shares_of(done.bars[row], text_of, (token,)),
                parent=parents[row],
                ends=done.ends and not done.last_stands and row == last_of_path,
            )
        )
    if done.last_stands:
        token = verdict.last_token_id
        bars = done.bars[-1]
        depth = len(done.path)
        tokens.append(
            Judged(
                depth=depth,
                position=base + depth,
                token_id=token,
                text=texts[-1],
                kind=verdict.last_kind if proposal.token_ids else "plain",
                p=bars.p[bars.token_ids.index(token)] if bars is not None else nan,
                q=nan,
                accept=nan,
                u=verdict.last_u,
                alpha=bars.alpha if bars is not None else nan,
                shares=shares_of(bars, text_of, (token,)),
                parent=last_of_path,
                ends=done.ends,
            )
        )
    return SpeculativeRound(
        index=done.index,
        gamma=done.gamma,
        tokens=tuple(tokens),
        emitted=len(done.token_ids),
        source=proposal.source,
        draft_ms=done.draft_ms,
        verify_ms=done.verify_ms,
        judge_ms=done.judge_ms,
        target_positions=done.target_positions,
        draft_positions=done.draft_positions,
        target_bytes=done.target_bytes,
        draft_bytes=done.draft_bytes,
    )
