"""What became of a candidate, in a plain sentence. The tree, its table and the tests take the words from here."""

from __future__ import annotations

import math

from widgets.beam_search.state import BeamState

SENTENCES = {
    "kept": "Kept: ranked {rank} of {of}; the best {width} that have not ended go on.",
    "finished": "Finished: it ended among the best {width}, and its score is on the shelf.",
    "limit": "Finished: the length limit cut it among the best {width}, and its score is on the shelf.",
    "rank": "Lost: ranked {rank} of {of}, and {width} are kept.",
    "finished_pool": "Lost: it ended, but the shelf already holds {width} with a better score.",
    "length_penalty": "Lost to the length penalty: its sum beats one on the shelf, its score over the length does not.",
    "not_a_hypothesis": "Lost: it ended, but ranked {rank}; only the best {width} may finish.",
}
"""By fate, or by reason where it was pruned; {rank}, {of} and {width} are filled in."""


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def key_of(state: BeamState, node_id: int) -> str:
    """The key in `SENTENCES` of what became of a node in its step."""
    node = state.nodes[node_id]
    if node.fate == "pruned":
        return node.reason if node.reason in SENTENCES else "rank"
    if node.fate == "finished" and node_id in state.cut:
        return "limit"
    return node.fate


def sentence(state: BeamState, node_id: int) -> str:
    """What became of a node in its step."""
    of = len(state.steps[state.step_of[node_id]].nodes)
    rank = ordinal(state.nodes[node_id].rank + 1)
    return SENTENCES[key_of(state, node_id)].format(rank=rank, of=of, width=state.num_beams)


def signed(value: float, digits: int = 3) -> str:
    """A score with a true minus sign: "−0.730"; "–" where there is none."""
    if not math.isfinite(value):
        return "–" if not math.isinf(value) else ("∞" if value > 0 else "−∞")
    return f"{value:.{digits}f}".replace("-", "−")


def formula(total: float, length: int, penalty: float, score: float, digits: int = 3) -> str:
    """The score of a finished text with its numbers: "−12.41 / 17^1.0 = −0.730"; `digits` are the score's."""
    power = f"{penalty:g}" if penalty != int(penalty) else f"{penalty:.1f}"
    return f"{signed(total, digits - 1)} / {length}^{power.replace('-', '−')} = {signed(score, digits)}"
