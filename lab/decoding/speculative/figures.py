"""What a speculative run came to: acceptance, tokens a pass, costs, speed-up predicted and measured.

Definitions, for rounds that are each one target pass:

    judged          tokens that were compared; tokens after a rejection or on a branch not taken are not
    alpha           mean over the judged positions of sum min(p, q): the chance that any proposal is accepted there
    expected        (1 - alpha^(g+1)) / (1 - alpha) tokens from a round of g proposed tokens, if each position accepted
                    with alpha on its own (Leviathan et al. 2023, equation 1); the mean of it over the rounds, each with
                    the g it really had (a tree: its levels), so that it holds for adaptive gamma, and for look-up,
                    which finds fewer than asked for, or none
    c               draft time a proposed token / plain time a token
    v               time of verifying and judging a round / plain time a token; 1 on a machine where verification is
                    free, above 1 on a CPU
    predicted       expected / (g c + v), with g c the draft's time a round
    measured        plain time a token / speculative time a token

Times. A plain step is the median of the plain steps. A verification is the median of the rounds that verified as many
rows: they did the same work, so what differs is the machine's. Drafting and judging are sums: their work differs
from round to round (a look-up that hits, a head that runs), and a median would drop the dear kind. Tokens are counted,
never a median: the median of a round's time over its tokens would favour lucky rounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from statistics import median

from lab.decoding.speculative.kernel import RoundVerdict
from lab.decoding.speculative.verdict import verdict_of
from lab.decoding.tree import Tree
from lab.errors import BadInput


def share(part: float, whole: float) -> float | None:
    """part / whole; None where there is nothing to divide by: 0 of 0 is no rate."""
    return part / whole if whole > 0 else None


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tokens that stand after a round of `gamma` proposed ones: (1 - alpha^(gamma+1)) / (1 - alpha).

    Args:
        alpha: probability of acceptance at each position, 0 to 1; at 1 the result is gamma + 1.
        gamma: tokens proposed, 0 or more.

    Raises:
        BadInput: alpha outside [0, 1], or a negative gamma.
    """
    if not -1e-6 <= alpha <= 1 + 1e-6:
        raise BadInput(f"alpha is {alpha}.", remedy="Give a probability from 0 to 1.")
    if gamma < 0:
        raise BadInput(f"gamma is {gamma}.", remedy="Give a number of tokens, 0 or more.")
    total = 1.0  # the geometric series itself: no 0/0 at alpha = 1
    for _ in range(gamma):
        total = 1.0 + min(max(alpha, 0.0), 1.0) * total
    return total


def mean_expected(alpha: float, gammas: Mapping[int, int]) -> float | None:
    """`expected_tokens`, its mean over rounds. `gammas`: proposed tokens of a round -> how many such rounds."""
    rounds = sum(gammas.values())
    return share(sum(count * expected_tokens(alpha, gamma) for gamma, count in gammas.items()), rounds)


def break_even_alpha(gammas: Mapping[int, int], cost: float) -> float | None:
    """The alpha from which speculation pays: `mean_expected` = cost.

    Args:
        gammas: proposed tokens of a round -> how many such rounds.
        cost: of a round in plain steps, g c + v.

    Returns:
        In [0, 1); 0 where a round costs no more than a step; None where no alpha below 1 is enough.
    """
    most = mean_expected(1.0, gammas)
    if most is None or not cost < most:  # also for a cost of NaN
        return None
    if cost <= 1.0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):  # expectation grows with alpha
        middle = (low + high) / 2
        if (mean_expected(middle, gammas) or 0.0) < cost:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class Figures:
    """The figures of a run. Fields, units and None as in the event `SpeculativeFigures`.

    `mean_gamma` is drafted / rounds. `plain_ms` is NaN where no plain step was measured, `speculative_ms` where no
    token came of a round.
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


@dataclass
class Tally:
    """Counts the rounds of a run, or of several runs with one draft, into `Figures`.

    Attributes:
        draft: its name.
        gamma: tokens asked for in a round; 0 for adaptive.
        other_tokens: new tokens that no round brought: the first of each run.
    """

    draft: str
    gamma: int
    other_tokens: int = 0
    rounds: int = 0
    emitted: int = 0
    drafted: int = 0
    accepted: int = 0
    _depths: list[list[int]] = field(default_factory=list)
    _alpha: float = 0.0
    _variation: float = 0.0
    _positions: int = 0
    _levels: Counter[int] = field(default_factory=Counter)
    _draft_ms: float = 0.0
    _judge_ms: float = 0.0
    _verify_ms: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def take(
        self, verdict: RoundVerdict, tree: Tree, *, emitted: int, draft_ms: float, verify_ms: float, judge_ms: float
    ) -> None:
        """Count one round.

        Args:
            tree: of the proposal.
            emitted: tokens that stand after it, the last one included; fewer than accepted + 1 where the text was cut.
            draft_ms, verify_ms, judge_ms: own compute of its three parts; together all that the round cost.

        Raises:
            BadInput: the tree is not the verdict's.
        """
        if len(tree.parents) != len(verdict.rows):
            raise BadInput(
                f"{len(verdict.rows)} verdicts for a tree of {len(tree.parents)} rows.", remedy="Match them."
            )
        depths = tree.depths()
        self.rounds += 1
        self.emitted += emitted
        self.drafted += len(verdict.rows)
        self.accepted += len(verdict.path)
        self._levels[max(depths, default=-1) + 1] += 1
        self._draft_ms += draft_ms
        self._judge_ms += judge_ms
        self._verify_ms[len(verdict.rows) + 1].append(verify_ms)
        seen: set[int] = set()
        for row, parent, depth in zip(verdict.rows, tree.parents, depths, strict=True):
            if row.kind == "unjudged":
                continue
            while len(self._depths) <= depth:
                self._depths.append([0, 0])
            self._depths[depth][0] += 1
            self._depths[depth][1] += row.kind == "accepted"
            if parent not in seen and not isnan(row.alpha):  # candidates of one position share its alpha
                seen.add(parent)
                self._alpha += row.alpha
                self._variation += row.total_variation
                self._positions += 1

    def figures(self, plain_ms: Iterable[float]) -> Figures:
        """The figures so far. `plain_ms`: milliseconds of each step of the plain run; may be empty."""
        steps = sorted(plain_ms)
        plain = median(steps) if steps else nan
        judged = sum(depth[0] for depth in self._depths)
        alpha = share(self._alpha, self._positions)
        verify_ms = sum(median(times) * len(times) for times in self._verify_ms.values())
        round_ms = share(self._draft_ms + verify_ms + self._judge_ms, self.rounds)
        token_ms = share(self._draft_ms + verify_ms + self._judge_ms, self.emitted)
        expected = mean_expected(alpha if alpha is not None else 0.0, self._levels) if self._told() else None
        cost = _over(round_ms, plain)
        c = _over(share(self._draft_ms, self.drafted), plain)
        v = _over(share(verify_ms + self._judge_ms, self.rounds), plain)
        per_pass = share(self.emitted, self.rounds)
        measured = share(plain, token_ms) if token_ms is not None and steps else None
        break_even = break_even_alpha(self._levels, cost) if cost is not None else None
        mean_gamma = share(self.drafted, self.rounds) or 0.0
        return Figures(
            draft=self.draft,
            gamma=self.gamma,
            mean_gamma=mean_gamma,
            rounds=self.rounds,
            new_tokens=self.emitted + self.other_tokens,
            drafted=self.drafted,
            judged=judged,
            accepted=self.accepted,
            accept_judged=share(self.accepted, judged),
            accept_drafted=share(self.accepted, self.drafted),
            by_depth=tuple((depth[0], depth[1]) for depth in self._depths),
            tokens_per_pass=per_pass,
            alpha=alpha,
            total_variation=share(self._variation, self._positions),
            expected_tokens=expected,
            c=c,
            v=v,
            predicted=share(expected, cost) if expected is not None and cost is not None else None,
            measured=measured,
            break_even_alpha=break_even,
            plain_ms=plain,
            speculative_ms=token_ms if token_ms is not None else nan,
            verdict=verdict_of(
                measured=measured,
                tokens_per_pass=per_pass,
                proposed=mean_gamma,
                c=c,
                v=v,
                alpha=alpha,
                break_even=break_even,
            ),
        )

    def _told(self) -> bool:
        """Whether an expectation can be told: some position was judged, or nothing was ever proposed."""
        return self.rounds > 0 and (self._positions > 0 or self.drafted == 0)


def _over(ms: float | None, plain: float) -> float | None:
    return ms / plain if ms is not None and plain > 0 else None  # a plain of NaN is not above 0
