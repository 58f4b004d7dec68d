"""What a search was seen to do, and what in it should not have been.

The findings come from the cache's rows and the shelf's own figures, never from knowing which mistake was made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.decoding.beam.hypotheses import Finished
from lab.decoding.beam.search import Tree
from lab.kv_cache.observed import Finding

NameText = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class RowsSeen:
    """One pass of the running beams.

    Attributes:
        index: the step that the pass was for.
        due: for each row, the new tokens of the beam that it stands for.
        held: for each row, those whose keys and values its cache holds after the pass.
    """

    index: int
    due: tuple[tuple[int, ...], ...]
    held: tuple[tuple[int, ...], ...]


def wrong_rows(seen: RowsSeen, name: NameText) -> Finding | None:
    """A row whose cache belongs to another text."""
    for row, (due, held) in enumerate(zip(seen.due, seen.held, strict=True)):
        if due != held:
            words = (
                f"in the pass for new token {seen.index + 1} beam {row + 1} stands for {name(due)}, but the cache of "
                f"its row holds {name(held)}"
            )
            return Finding("cache", seen.index, words)
    return None


def wrong_figures(shelf: Sequence[Finished], tree: Tree, length_penalty: float, name: NameText) -> list[Finding]:
    """Hypotheses whose length, sum or score is not that of their path, each kind once."""
    found: dict[str, Finding] = {}
    for hypothesis in shelf:
        path = tree.path(hypothesis.node)
        total = math.fsum(tree.log_probs[node] for node in path)
        text = name(tree.tokens(hypothesis.node))
        checks = {
            "length": (hypothesis.length, len(path), "tokens, the end token included"),
            "sum": (hypothesis.sum_log_prob, total, "by its tokens' log-probabilities"),
            "score": (hypothesis.score, total / len(path) ** length_penalty, "by the formula"),
        }
        for kind, (said, due, what) in checks.items():
            if kind not in found and abs(said - due) > 1e-4 * max(1.0, abs(due)):
                figures = f"{said:.6g} where it has {due:.6g} {what}"
                found[kind] = Finding(kind, len(path) - 1, f"the {kind} of {text} is given as {figures}")
    return list(found.values())
