"""The few words under the pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from widgets.beam_search.shelf import MOST_PUSHED
from widgets.beam_search.state import BeamState
from widgets.beam_search.words import signed
from widgets.format import format_number, format_share

MOST_TEXT = 160
"""Characters of a text that stands in a sentence."""

Lines = list[tuple[str, str]]


def text_lines(state: BeamState, step: int, *, followed: bool) -> Lines:
    """Whose tokens the strip shows after `step`."""
    if step < 0:
        return []
    if followed:
        which = "The text through the token that you follow; Escape or a second click lets it go."
    elif state.over_at(step):
        which = "The best text."
    else:
        which = "The leading text so far."
    return [("p", f"{which} The bar under a token is its probability.")]


def fork_lines(state: BeamState, step: int) -> Lines:
    """Once the search is over: what greedy and the winner took where they part, and how far apart they end."""
    greedy = state.paths.get("greedy")
    best = state.steps[step].shelf[0] if state.over_at(step) and state.steps[step].shelf else None
    if greedy is None or best is None:
        return []
    path, at = state.path(best.node), state.fork()
    texts = [n.text for n in path]
    if at is None:
        return [("p", f"The winner is greedy's own text: “{_prose(texts)}”.")]
    took = _took(greedy.texts, greedy.log_probs, at)
    other = _took(texts, [n.log_prob for n in path], at)
    ahead, total = best.sum_log_prob - sum(greedy.log_probs), sum(greedy.log_probs)
    sums = f"log-probability {signed(best.sum_log_prob, 2)} against {signed(total, 2)}"
    if ahead >= 0:
        times = f"{format_number(math.exp(ahead))} times as likely" if ahead < 11 else "far likelier"
        end = f"In the end the winner's whole text is {times}: {sums}."
    else:
        scores = f"{signed(best.score)} against {signed(greedy.score)}"
        end = f"In the end the winner's whole text is less likely: {sums}; their scores are {scores}."
    first = f"At token {at + 1} greedy {took} and the winner {other}."
    written = f"Greedy wrote “{_prose(greedy.texts)}”; the winner is “{_prose(texts)}”."
    return [("p", f"{first} {written} {end}")]


def _took(texts: Sequence[str], log_probs: Sequence[float], at: int) -> str:
    if at >= len(texts):
        return "had ended"
    return f"took “{_prose(texts[at : at + 1])}” ({format_share(math.exp(min(0.0, log_probs[at])))})"


def _prose(texts: Sequence[str]) -> str:
    text = "".join(texts).replace("\n", "↵").strip(" ")
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def shelf_lines(state: BeamState, step: int) -> Lines:
    """Why the search stopped, and what a dashed edge means where there is one."""
    if step < 0:
        return []
    at, lines = state.steps[step], []
    if at.stop:
        lines.append(("p", f"The search stopped: {at.stop.rstrip('.')}."))
    if (gone := len(state.pushed_at(step))) > MOST_PUSHED:
        lines.append(("p", f"Of {gone} texts that were pushed out, the best {MOST_PUSHED} are shown."))
    if any(not h.is_end for h in at.shelf):
        lines.append(("p", "A dashed edge: the length limit cut the text, no end token ended it."))
    return lines


def plot_lines(state: BeamState, step: int) -> Lines:
    """Where the other paths left the beams."""
    if step < 0:
        return []
    said = []
    for kind, path in state.paths.items():
        name = "Greedy's path" if kind == "greedy" else "The sampled path"
        left, total = state.left_at(kind), signed(sum(path.log_probs), 2)
        if left is None:
            said.append(f"{name} stays within the beams to its end, at {total}.")
        else:
            said.append(f"{name} leaves the beams at token {left + 1} and ends at {total}.")
    return [("p", " ".join(said) or "Greedy's path comes after the search.")]
