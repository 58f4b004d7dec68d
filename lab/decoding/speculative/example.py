"""The lesson's example: one position, three tokens, every number through the kernel that decodes.

p = (0.2, 0.5, 0.3), q = (0.5, 0.3, 0.2). Token 0 is accepted with 0.4, tokens 1 and 2 always; a rejected token 0 is
replaced from (0, 0.667, 0.333); 0.7 of all proposals are accepted; and what comes out is p.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lab.decoding.drafts.base import Proposal
from lab.decoding.speculative.identity import alpha, emitted, total_variation
from lab.decoding.speculative.kernel import judge

P = (0.2, 0.5, 0.3)
Q = (0.5, 0.3, 0.2)


@dataclass(frozen=True)
class WorkedExample:
    """All figures of the example; a tuple has one entry for each token.

    Attributes:
        acceptance: min(1, p/q), the probability that the token is accepted once proposed.
        residual: what a replacement is drawn from.
        kept: the probability that the token is proposed and accepted, q times acceptance.
        replaced: the probability that a rejection ends in the token.
        emitted: kept + replaced, which is p.
        total_acceptance: sum of `kept`, which is alpha, the sum of min(p, q).
    """

    p: tuple[float, ...]
    q: tuple[float, ...]
    acceptance: tuple[float, ...]
    residual: tuple[float, ...]
    kept: tuple[float, ...]
    replaced: tuple[float, ...]
    emitted: tuple[float, ...]
    total_acceptance: float
    alpha: float
    total_variation: float


def worked_example() -> WorkedExample:
    """The example, computed by `judge` and `emitted`."""
    p, q = torch.tensor(P, dtype=torch.float64), torch.tensor(Q, dtype=torch.float64)
    rows = torch.stack((p, p))  # the second row, for a bonus token, plays no part here
    # u just below 1 rejects whatever can be rejected
    verdicts = [judge(Proposal.chain((token,), (q,)), rows, (1 - 1e-12, 0.5)) for token in range(len(P))]
    acceptance = tuple(verdict.rows[0].accept for verdict in verdicts)
    residual = next(v.last_distribution for v in verdicts if v.last_kind == "resampled")
    kept = tuple(drawn * accepted for drawn, accepted in zip(Q, acceptance, strict=True))
    replaced = ((1 - sum(kept)) * residual).tolist()
    return WorkedExample(
        p=P,
        q=Q,
        acceptance=acceptance,
        residual=tuple(residual.tolist()),
        kept=kept,
        replaced=tuple(replaced),
        emitted=tuple(emitted(p, q).tolist()),
        total_acceptance=sum(kept),
        alpha=alpha(p, q),
        total_variation=total_variation(p, q),
    )
