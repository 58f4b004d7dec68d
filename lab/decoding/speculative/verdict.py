"""Whether speculation paid, in words, and what it failed on.

A round costs g c + v plain steps and brings T tokens; it pays if T is more. Where it does not, the cause is one of:

- it proposed hardly anything;
- acceptance: at an alpha of 0.5 (`FAIR`) it would have paid, but alpha is lower;
- else the dearer of the draft (g c) and of verification beyond one step (v - 1).
"""

from __future__ import annotations

FAIR = 0.5
"""An acceptance that a fair draft reaches: where break-even lies below it, the costs are not to blame."""

TIE = 0.03
"""Speed-ups this near to 1 are called equal: shorter than what a run differs from the next."""

SELDOM = 0.5
"""Tokens proposed a round, below which the draft mostly finds nothing."""


def verdict_of(
    *,
    measured: float | None,
    tokens_per_pass: float | None,
    proposed: float,
    c: float | None,
    v: float | None,
    alpha: float | None,
    break_even: float | None,
) -> str:
    """One sentence.

    Args:
        measured: the speed-up; None without rounds or without a plain run.
        tokens_per_pass: tokens that stand a round.
        proposed: tokens proposed a round, the mean.
        c: draft time a proposed token, in plain steps.
        v: verification time a round, in plain steps.
        alpha: the mean probability of acceptance.
        break_even: the alpha from which it would pay; None if none does.
    """
    if measured is None or tokens_per_pass is None or v is None:
        return "No speed to tell: there was no round, or no plain run to compare with."
    drafting = proposed * (c or 0.0)
    balance = f"round brings {tokens_per_pass:.2f} tokens and costs {drafting + v:.2f} plain steps"
    if measured >= 1 + TIE:
        return f"{measured:.2f} × faster: a {balance}."
    if measured > 1 - TIE:
        return f"About as fast ({measured:.2f} ×): a {balance}."
    return f"{measured:.2f} ×: slower, because {_cause(proposed, drafting, c, v, alpha, break_even)}. A {balance}."


def _cause(
    proposed: float, drafting: float, c: float | None, v: float, alpha: float | None, break_even: float | None
) -> str:
    few = f"the acceptance is low, α = {alpha:.2f}" if alpha is not None and alpha < FAIR else ""
    if proposed < SELDOM and drafting < v - 1 + SELDOM:
        return f"the draft proposes only {proposed:.1f} tokens a round"
    if few and break_even is not None and break_even <= FAIR:
        return f"{few}; it pays above α = {break_even:.2f}"
    beyond = "" if break_even is None else f"; it pays above α = {break_even:.2f}"
    also = f" and {few}" if few else ""
    if drafting >= v - 1:
        each = f"the draft costs {c or 0.0:.2f} of a step for each of {proposed:.1f} tokens"
        return f"{each}{also}{beyond}"
    return f"verifying {proposed:.1f} proposed tokens and the one before them costs {v:.2f} plain steps{also}{beyond}"
