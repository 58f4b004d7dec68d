"""The rows of the shelf, and what a running text could still reach."""

from __future__ import annotations

import math
from typing import Any

from lab.events.beam_search import Hypothesis
from widgets.beam_search.state import BeamState
from widgets.beam_search.words import formula, signed

MOST_PUSHED = 8
"""Texts shown of those that better ones pushed off the shelf."""
MOST_DIGITS = 6
BEFORE = 3
"""Tokens shown before the one in which a text leaves the best."""


def shelf_rows(state: BeamState, step: int) -> list[dict[str, Any]]:
    """The finished texts after `step`, best first, with the formula of each score.

    A text begins shortly before it leaves the best one; the best itself, before the second leaves it.
    """
    shelf = state.steps[step].shelf if 0 <= step < len(state.steps) else ()
    paths = [[n.text for n in state.path(h.node)] for h in shelf]
    digits = _digits(state, step)
    rows = []
    for i, (h, path) in enumerate(zip(shelf, paths, strict=True)):
        other = paths[0] if i else paths[1] if len(paths) > 1 else []
        cut = _shared(path, other) - BEFORE
        cut = cut if cut > BEFORE else 0
        rows.append(_row(state, h, path, cut, digits))
    return rows


def pushed_rows(state: BeamState, step: int) -> list[dict[str, Any]]:
    """The best of the texts that better ones had pushed off the shelf by `step`, in the form of `shelf_rows`."""
    digits, rows = _digits(state, step), []
    for h in state.pushed_at(step)[:MOST_PUSHED]:
        path = [n.text for n in state.path(h.node)]
        best = [n.text for n in state.path(state.steps[step].shelf[0].node)] if state.steps[step].shelf else []
        cut = _shared(path, best) - BEFORE
        rows.append(_row(state, h, path, cut if cut > BEFORE else 0, digits))
    return rows


def _row(state: BeamState, h: Hypothesis, path: list[str], cut: int, digits: int) -> dict[str, Any]:
    return {
        "node": h.node,
        "text": ("… " if cut else "") + _line(path[cut:]),
        "full": "".join(path),
        "formula": formula(h.sum_log_prob, h.length, state.length_penalty, h.score, digits),
        "is_end": h.is_end,
    }


def _digits(state: BeamState, step: int) -> int:
    """Decimals of the scores: three, or as many more as it takes that no two different scores read alike."""
    shelf = state.steps[step].shelf if 0 <= step < len(state.steps) else ()
    scores = {h.score for h in (*shelf, *state.pushed_at(step)[:MOST_PUSHED])}
    for digits in range(3, MOST_DIGITS):
        if len({signed(score, digits) for score in scores}) == len(scores):
            return digits
    return MOST_DIGITS


def bound_row(state: BeamState, step: int) -> dict[str, Any] | None:
    """The best score that a running text could still reach, and how many texts on the shelf are better than it."""
    if not 0 <= step < len(state.steps):
        return None
    at = state.steps[step]
    if not math.isfinite(at.best_possible) or not at.running:
        return None
    above = sum(h.score > at.best_possible for h in at.shelf)
    return {"text": f"a running text can reach {signed(at.best_possible)}", "above": above}


def _shared(path: list[str], other: list[str]) -> int:
    """How many first tokens two texts have in common."""
    pairs = zip(path, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(path), len(other)))


def _line(texts: list[str]) -> str:
    """Tokens in one line."""
    return "".join(texts).replace("\n", "↵").strip(" ") or "∅"
