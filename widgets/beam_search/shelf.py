"""The rows of the shelf, and what a running text could still reach."""

from __future__ import annotations

import math
from typing import Any

from widgets.beam_search.state import BeamState
from widgets.beam_search.words import formula, signed

BEFORE = 3
"""Tokens shown before the one in which a text leaves the best."""


def shelf_rows(state: BeamState, step: int) -> list[dict[str, Any]]:
    """The finished texts after `step`, best first, with the formula of each score.

    A text begins shortly before it leaves the best one; the best itself, before the second leaves it.
    """
    shelf = state.steps[step].shelf if 0 <= step < len(state.steps) else ()
    paths = [[n.text for n in state.path(h.node)] for h in shelf]
    rows = []
    for i, (h, path) in enumerate(zip(shelf, paths, strict=True)):
        other = paths[0] if i else paths[1] if len(paths) > 1 else []
        cut = _shared(path, other) - BEFORE
        cut = cut if cut > BEFORE else 0
        rows.append(
            {
                "node": h.node,
                "text": ("… " if cut else "") + _line(path[cut:]),
                "full": "".join(path),
                "formula": formula(h.sum_log_prob, h.length, state.length_penalty, h.score),
                "is_end": h.is_end,
            }
        )
    return rows


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
