"""Measuring without showing each token: pairs of runs counted into figures, and checked on the way."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from lab.decoding.speculative.figures import Tally
from lab.decoding.speculative.loop import First, Round
from lab.decoding.speculative.observed import RuleCheck
from lab.decoding.speculative.teacher import taught
from lab.events import Proof
from lab.experiments.speculative.counted import take_round
from lab.experiments.speculative.pair import Took, run_pair
from lab.experiments.speculative.proof import DRAWN, GREEDY_PLAIN, GreedyEvidence, TopTwo, Verdict, prove_greedy
from lab.experiments.speculative.setup import Plan, Setup
from lab.steps import relay


@dataclass
class Measured:
    """What several pairs of runs showed.

    Attributes:
        rule: of all judged positions, where tokens are drawn.
        runs: pairs that ended. equal, ties: greedy ones of the same text, and of one that parts at a near tie.
        words: of the first pair that parted.
    """

    setup: Setup
    runs: int = 0
    equal: int = 0
    ties: int = 0
    words: str = ""

    def __post_init__(self) -> None:
        self.rule = RuleCheck(self.setup.name_of)

    def pair(
        self, plan: Plan, prompt_ids: Sequence[int], tallies: Sequence[Tally], plain_ms: Sequence[list[float]]
    ) -> Generator[None, None, Took]:
        """One pair, counted into each of `tallies` and `plain_ms`."""
        base = 0

        def take(item: object) -> None:
            nonlocal base
            if isinstance(item, First):
                base = 1
                for tally in tallies:
                    tally.other_tokens += 1
            elif isinstance(item, Round):
                for tally in tallies:
                    take_round(tally, item)
                self.rule.take(item, base)
                base += len(item.token_ids)

        running = run_pair(self.setup, plan, prompt_ids, max_new_tokens=self.setup.params.max_new_tokens)
        took = yield from relay(running, take)
        for times in plain_ms:
            times.extend(took.plain_ms)
        self.runs += 1
        if not self.setup.params.do_sample:
            yield from self._compare(prompt_ids, took)
        return took

    def _compare(self, prompt_ids: Sequence[int], took: Took) -> Generator[None, None, None]:
        setup = self.setup
        others: dict[str, Sequence[int]] = {"plain greedy decoding": took.plain_ids}
        evidence = GreedyEvidence(took.token_ids, others, None, setup.dtype, setup.name_of)
        parted = evidence.first_difference()
        if parted is None:
            self.equal += 1
            return
        at, top = parted[1], None
        rules = setup.distribution(len(prompt_ids))
        with closing(taught(setup.loaded.model, prompt_ids, took.token_ids[: at + 1], rules)) as reading:
            for row in reading:
                if row is not None and row.index == at:
                    top = TopTwo.of(row.logits)
                yield None
        proof = prove_greedy(GreedyEvidence(took.token_ids, others, top, setup.dtype, setup.name_of))
        if proof.verdict == "tie":
            self.ties += 1
        if proof.verdict != "tie" or not self.words:
            self.words = proof.explanation

    def proof(self) -> Proof:
        """The verdict on all of them together."""
        if self.setup.params.do_sample:
            faults = self.rule.faults
            wrong = len({id(fault) for fault in faults})
            if not self.rule.positions:
                return Proof(
                    verdict="unproven",
                    claim=DRAWN,
                    compared=0,
                    matched=0,
                    unit="positions",
                    explanation="No round was made, so there is nothing to compare.",
                    detail={"runs": self.runs},
                )
            return Proof(
                verdict="different" if faults else "equal",
                claim=DRAWN,
                compared=self.rule.positions,
                matched=max(0, self.rule.positions - wrong),
                unit="positions",
                explanation=f"At new token {faults[0].position + 1} {faults[0].words}." if faults else "",
                detail={
                    "runs": self.runs,
                    "rejections": self.rule.rejections,
                    "identity_largest_difference": self.rule.identity,
                    "acceptance_largest_difference": self.rule.acceptance,
                    "replacement_largest_variation": self.rule.replacement,
                },
            )
        verdict: Verdict = "equal"
        if self.equal < self.runs:
            verdict = "tie" if self.equal + self.ties == self.runs else "different"
        return Proof(
            verdict=verdict,
            claim=GREEDY_PLAIN,
            compared=self.runs,
            matched=self.equal,
            unit="texts",
            explanation=self.words,
            detail={"near_ties": self.ties, "dtype": self.setup.dtype},
        )


@dataclass
class Counted:
    """A tally with the plain steps that belong to it."""

    tally: Tally
    plain_ms: list[float] = field(default_factory=list)
