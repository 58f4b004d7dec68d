"""What a run did at each judged position, held against the rule in double precision.

The analytic identity says that acceptance with min(1, p/q) and replacement by norm(max(0, p - q)) emit p. So three
things are checked of the numbers that were really used: that they satisfy the identity, that each probability of
acceptance was min(1, p/q) of the distribution the token was drawn from, and that each replacement was drawn from the
residual (each bonus token from p).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lab.decoding.drafts.base import Proposal
from lab.decoding.speculative.rounds import Round

IDENTITY = 1e-9
"""How far the emission may be from p in double precision."""

ROUNDING = 1e-4
"""How far a number used in single precision may be from the one in double precision."""


@dataclass(frozen=True)
class Fault:
    """One thing that was not as the rule says. `position` is among the new tokens."""

    position: int
    kind: str
    words: str


@dataclass
class RuleCheck:
    """Sums over a run.

    Attributes:
        positions: positions judged or drawn at.
        identity: the largest |emitted - p|. acceptance, replacement: the largest deviations seen.
        rejections: how many replacements were drawn.
    """

    name_of: Callable[[int], str] = str
    positions: int = 0
    rejections: int = 0
    identity: float = 0.0
    acceptance: float = 0.0
    replacement: float = 0.0
    faults: list[Fault] = field(default_factory=list)

    def take(self, done: Round, base: int) -> None:
        """Check one round; `base` new tokens stood before it. The target must have drawn (p is kept)."""
        if done.p is None:
            return
        with torch.inference_mode():
            self._walk(done, base, done.p)

    def _walk(self, done: Round, base: int, p: Tensor) -> None:
        proposal, verdict, tree = done.proposal, done.verdict, done.proposal.tree
        node, depth = -1, 0
        path = list(verdict.path)
        while True:
            here = _normalised(p[node + 1])
            rejected: list[int] = []
            taken = path[depth] if depth < len(path) else None
            left = here
            for row in tree.children(node):
                judged = verdict.rows[row]
                if judged.kind == "unjudged":
                    break
                self._acceptance(base + depth, proposal, row, left, judged.accept)
                if row == taken:
                    break
                rejected.append(row)
                left = _residual(left, proposal, row)
            if tree.children(node):
                self._identity(base + depth, proposal, tree.children(node), here)
            self.positions += 1
            if taken is None:
                self._replacement(base + depth, verdict.last_distribution, left, rejected=bool(rejected))
                return
            if depth + 1 == len(done.path) and not done.last_stands:
                return  # cut: what comes after does not stand
            node, depth = taken, depth + 1

    def _acceptance(self, position: int, proposal: Proposal, row: int, left: Tensor, used: float) -> None:
        q = proposal.q[row]
        token = proposal.token_ids[row]
        drawn = 1.0 if q is None else float(_normalised(q)[token])
        right = min(1.0, float(left[token]) / drawn) if drawn > 0.0 else 0.0
        off = abs(used - right)
        self.acceptance = max(self.acceptance, off)
        if off > ROUNDING:
            self.faults.append(
                Fault(
                    position,
                    "acceptance",
                    f"{self.name_of(token)} was accepted with probability {used:.3f}, and min(1, p/q) with the q it "
                    f"was drawn from is {right:.3f}",
                )
            )

    def _replacement(self, position: int, used: Tensor, right: Tensor, *, rejected: bool) -> None:
        self.rejections += rejected
        off = float((_normalised(used) - right).abs().sum()) / 2
        self.replacement = max(self.replacement, off)
        if off > ROUNDING:
            what = "the replacement was drawn from a distribution" if rejected else "the bonus token was drawn from one"
            self.faults.append(
                Fault(
                    position,
                    "replacement",
                    f"{what} whose total variation from {'the residual' if rejected else 'p'} is {off:.3f}",
                )
            )

    def _identity(self, position: int, proposal: Proposal, children: tuple[int, ...], p: Tensor) -> None:
        """Emitted(x) of the exact rule for this very p and q."""
        q = proposal.q[children[0]]
        if q is None:
            emitted, left, weight = torch.zeros_like(p), p, 1.0
            for row in children:
                token = proposal.token_ids[row]
                share = float(left[token])
                emitted[token] += weight * share
                weight *= 1.0 - share
                left = _residual(left, proposal, row)
            emitted += weight * left
        else:
            q = _normalised(q)
            kept = torch.minimum(p, q)
            emitted = kept + (1.0 - float(kept.sum())) * _over(p, q)
        off = float((emitted - p).abs().max())
        self.identity = max(self.identity, off)
        if off > IDENTITY:
            self.faults.append(Fault(position, "identity", f"what the rule emits differs from p by {off:.2g}"))


def _normalised(distribution: Tensor) -> Tensor:
    exact = distribution.double()
    return exact / exact.sum()


def _residual(left: Tensor, proposal: Proposal, row: int) -> Tensor:
    q = proposal.q[row]
    if q is not None:
        return _over(left, _normalised(q))
    rest = left.clone()
    rest[proposal.token_ids[row]] = 0.0
    total = float(rest.sum())
    return rest / total if total > 0.0 else left


def _over(p: Tensor, q: Tensor) -> Tensor:
    over = (p - q).clamp_(min=0.0)
    total = float(over.sum())
    return over / total if total > 0.0 else p
